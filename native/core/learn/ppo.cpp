#include "core/learn/ppo.hpp"

#include <algorithm>

namespace sharpwave {

PpoResult ppo_update(PolicyGradient* gradient, const PolicyRollout& rollout,
                     const std::int64_t* orders, std::size_t n_epochs, const PpoOptions& options,
                     Adam* optimizer) {
  std::optional<AdaptiveRate> adaptive_rate = options.adaptive_rate;
  const std::size_t n_parameters = gradient->policy().n_parameters();
  PolicyMetrics sums, means;
  std::size_t n_steps = 0, epoch = 0;
  bool too_far = false;
  Team::lead(options.threads, [&](Team& team) {
    while (epoch < n_epochs && !too_far) {
      const std::int64_t* order = orders + epoch * rollout.n_rows;
      // One minibatch of everything, in the same order, need not be gathered in every pass.
      const bool are_as_before = epoch > 0 && options.batch_size >= rollout.n_rows &&
                                 std::equal(order, order + rollout.n_rows, order - rollout.n_rows);
      ++epoch;
      for (std::size_t first = 0; first < rollout.n_rows; first += options.batch_size) {
        const std::size_t n = std::min(options.batch_size, rollout.n_rows - first);
        PolicyMetrics metrics =
            gradient->compute(rollout, order + first, n, options.loss, team, are_as_before);
        metrics.grad_norm =
            clip_norm(gradient->gradient(), n_parameters, options.max_grad_norm, team);
        if (adaptive_rate && !too_far) {
          adaptive_rate->follow(metrics.approx_kl);
          optimizer->set_lr(*adaptive_rate->rate);
        }
        // Once too far, always too far: what remains of the pass is measured and not taken.
        too_far = too_far || (options.target_kl && metrics.approx_kl > 1.5 * *options.target_kl);
        if (!too_far) {
          descend(gradient->parameters(), gradient->gradient(), n_parameters, optimizer, team);
        }
        sums.add(metrics, 1.0);
        ++n_steps;
      }
    }
  });
  means.add(sums, 1.0 / static_cast<double>(n_steps));
  return {means, epoch};
}

}  // namespace sharpwave
