// Steps to learn from, as they are drawn from a replay buffer.
#pragma once

#include <cstddef>

namespace sharpwave {

// The target of a value function is rewards + discounts * V(next_obs).
struct ReplayRows {
  std::size_t n = 0;
  const float* obs = nullptr;       // [n, n_inputs]
  const float* next_obs = nullptr;  // the same
  const float* rewards = nullptr;   // [n]
  const float* discounts = nullptr;
  const float* weights = nullptr;  // of prioritized draws; may be null

  float weight(std::size_t row) const { return weights == nullptr ? 1.0f : weights[row]; }
};

struct ContinuousRows : ReplayRows {
  const float* actions = nullptr;  // [n, n_actions], in [-1, 1]
};

}  // namespace sharpwave
