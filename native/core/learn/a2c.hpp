// Advantage Actor-Critic (src/sharpwave/algorithms/a2c.py): what one update does.
#pragma once

#include <cstddef>

#include "core/learn/optimizer.hpp"
#include "core/learn/policy_gradient.hpp"

namespace sharpwave {

struct A2cOptions {
  PolicyLoss loss;
  double max_grad_norm;
  std::size_t threads;
};

// One gradient step on all rows of a rollout.
PolicyMetrics a2c_update(PolicyGradient* gradient, const PolicyRollout& rollout,
                         const A2cOptions& options, Rmsprop* optimizer);

}  // namespace sharpwave
