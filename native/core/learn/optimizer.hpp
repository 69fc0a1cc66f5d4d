// Optimizers of one flat vector of parameters. Their state lies in memory of the caller's.
#pragma once

#include <cmath>
#include <cstddef>

#include "core/isa/kernels.hpp"
#include "core/learn/team.hpp"

namespace sharpwave {

// m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g g, x -= lr (m / c1) / (sqrt(v / c2) + eps) with
// c = 1 - b^t.
class Adam {
 public:
  struct State {
    float* mean;
    float* square;
    float* steps;  // one number
  };

  Adam(const State& state, double lr, double beta1, double beta2, double eps)
      : state_(state), lr_(lr), beta1_(beta1), beta2_(beta2), eps_(eps) {}

  void set_lr(double lr) { lr_ = lr; }

  void begin_step() {
    *state_.steps += 1.0f;
    const double t = static_cast<double>(*state_.steps);
    step_ = {.share1 = static_cast<float>(1.0 - beta1_),
             .beta2 = static_cast<float>(beta2_),
             .share2 = static_cast<float>(1.0 - beta2_),
             .size = static_cast<float>(lr_ / (1.0 - std::pow(beta1_, t))),
             .root_factor = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(beta2_, t))),
             .eps = static_cast<float>(eps_)};
  }

  // Some of the parameters, after begin_step().
  void move(float* data, const float* grad, std::size_t first, std::size_t n) const {
    kernels().learn.adam(data + first, grad + first, state_.mean + first, state_.square + first, n,
                         step_);
  }

 private:
  State state_;
  double lr_, beta1_, beta2_, eps_;
  AdamStep step_{};
};

// v = alpha v + (1 - alpha) g g, x -= lr g / (sqrt(v) + eps).
class Rmsprop {
 public:
  Rmsprop(float* square, double lr, double alpha, double eps)
      : square_(square),
        step_{static_cast<float>(lr), static_cast<float>(alpha), static_cast<float>(1.0 - alpha),
              static_cast<float>(eps)} {}

  void begin_step() {}
  void move(float* data, const float* grad, std::size_t first, std::size_t n) const {
    kernels().learn.rmsprop(data + first, grad + first, square_ + first, n, step_);
  }

 private:
  float* square_;
  RmspropStep step_;
};

// Scales a gradient that is longer than `max_norm` down to it; its length before. NaN spreads.
double clip_norm(float* gradient, std::size_t n, double max_norm, Team& team);

// slow += tau (fast - slow), [n] each.
void follow(float* slow, const float* fast, std::size_t n, float tau, Team& team);

template <typename Optimizer>
void descend(float* parameters, const float* gradient, std::size_t n, Optimizer* optimizer,
             Team& team);

// Moves parameters along their gradient, which is shortened before where it is too long.
void take_step(float* parameters, float* gradient, std::size_t n, double max_norm, Adam* optimizer,
               Team& team);

extern template void descend(float*, const float*, std::size_t, Adam*, Team&);
extern template void descend(float*, const float*, std::size_t, Rmsprop*, Team&);

}  // namespace sharpwave
