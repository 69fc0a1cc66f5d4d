// Proximal Policy Optimization (src/sharpwave/algorithms/ppo.py): what one update does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/learn/optimizer.hpp"
#include "core/learn/policy_gradient.hpp"

namespace sharpwave {

struct PpoOptions {
  PolicyLoss loss;
  std::size_t batch_size;
  double max_grad_norm;
  std::optional<double> target_kl;
  std::size_t threads;
};

struct PpoResult {
  PolicyMetrics means;   // over the gradient steps
  std::size_t n_epochs;  // how many were begun before the policy had moved too far
};

// Passes over a rollout in minibatches, a gradient step each. `orders` is [n_epochs, n_rows of the
// rollout]: the rows of each pass.
PpoResult ppo_update(PolicyGradient* gradient, const PolicyRollout& rollout,
                     const std::int64_t* orders, std::size_t n_epochs, const PpoOptions& options,
                     Adam* optimizer);

}  // namespace sharpwave
