// Running normalization of value targets (src/sharpwave/nn/value_norm.py).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace sharpwave {

// What values are normalized by.
struct ValueScale {
  float mean = 0.0f, deviation = 1.0f;

  float normalized(float x) const { return (x - mean) / deviation; }
  float denormalized(float x) const { return x * deviation + mean; }
};

// Exponential means of returns and of their squares, debiased, in memory of the caller's.
class ValueNorm {
 public:
  struct State {
    double mean, mean_square, weight;
  };

  ValueNorm(State* state, double decay) : state_(state), decay_(decay) {}

  // Takes in returns [n] with their weights; nothing where all of them are 0.
  void update(const float* returns, const float* weights, std::size_t n) {
    double first = 0.0, second = 0.0, total = 0.0;
    for (std::size_t i = 0; i < n; ++i) {
      const double x = returns[i], weight = weights[i];
      first += weight * x;
      second += weight * x * x;
      total += weight;
    }
    if (!(total > 0.0)) return;
    first /= total;
    second /= total;
    const double step = 1.0 - decay_;
    state_->mean += step * (first - state_->mean);
    state_->mean_square += step * (second - state_->mean_square);
    state_->weight += step * (1.0 - state_->weight);
  }

  ValueScale scale() const {
    constexpr double kLeastVariance = 1e-2;  // returns that hardly differ are not blown up
    if (!(state_->weight > 0.0)) return {};
    const double mean = state_->mean / state_->weight;
    const double variance =
        std::max(state_->mean_square / state_->weight - mean * mean, kLeastVariance);
    return {static_cast<float>(mean), static_cast<float>(std::sqrt(variance))};
  }

 private:
  State* state_;
  double decay_;
};

}  // namespace sharpwave
