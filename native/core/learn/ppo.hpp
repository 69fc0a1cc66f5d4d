// Proximal Policy Optimization (src/sharpwave/algorithms/ppo.py): what one update does.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/learn/optimizer.hpp"
#include "core/learn/policy_gradient.hpp"

namespace sharpwave {

// A learning rate that follows the divergence of the policy from the old one.
struct AdaptiveRate {
  double desired_kl;
  float low, high;
  float* rate;  // one number, which every gradient step changes

  void follow(double kl) {
    if (kl > 2.0 * desired_kl) {
      *rate /= 1.5f;
    } else if (kl > 0.0 && kl < 0.5 * desired_kl) {
      *rate *= 1.5f;
    }
    *rate = std::clamp(*rate, low, high);
  }
};

struct PpoOptions {
  PolicyLoss loss;
  std::size_t batch_size;
  double max_grad_norm;
  std::optional<double> target_kl;
  std::size_t threads;
  std::optional<AdaptiveRate> adaptive_rate = {};
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
