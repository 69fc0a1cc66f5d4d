// Weighted statistics of columns, in double.
#pragma once

#include <cstddef>
#include <limits>

namespace sharpwave {

struct Moments {
  double total;     // of the weights
  double mean;      // sum of w x / sum of w; 0 without weights
  double variance;  // sum of w (x - mean)^2 / (sum of w - 1)
};

// Of value(0) to value(n - 1) with weight(0) to weight(n - 1).
template <typename Value, typename Weight>
Moments moments_of(std::size_t n, Value&& value, Weight&& weight) {
  Moments moments{0.0, 0.0, 0.0};
  for (std::size_t i = 0; i < n; ++i) {
    moments.total += weight(i);
    moments.mean += weight(i) * value(i);
  }
  if (moments.total > 0.0) moments.mean /= moments.total;
  for (std::size_t i = 0; i < n; ++i) {
    const double d = value(i) - moments.mean;
    moments.variance += weight(i) * d * d;
  }
  moments.variance /= moments.total - 1.0;
  return moments;
}

// 1 - Var(returns - values) / Var(returns); NaN where all returns are equal. `weights` may be null.
inline double explained_variance(const float* values, const float* returns, const float* weights,
                                 std::size_t n) {
  const auto weight = [&](std::size_t i) { return weights == nullptr ? 1.0 : double{weights[i]}; };
  const Moments all = moments_of(n, [&](std::size_t i) { return double{returns[i]}; }, weight);
  const Moments left =
      moments_of(n, [&](std::size_t i) { return double{returns[i] - values[i]}; }, weight);
  if (!(all.variance != 0.0)) return std::numeric_limits<double>::quiet_NaN();
  return 1.0 - left.variance / all.variance;
}

}  // namespace sharpwave
