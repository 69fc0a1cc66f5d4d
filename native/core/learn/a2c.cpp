#include "core/learn/a2c.hpp"

#include <cstdint>
#include <numeric>
#include <vector>

namespace sharpwave {

PolicyMetrics a2c_update(PolicyGradient* gradient, const PolicyRollout& rollout,
                         const A2cOptions& options, Rmsprop* optimizer) {
  const std::size_t n_parameters = gradient->policy().n_parameters();
  std::vector<std::int64_t> rows(rollout.n_rows);
  std::iota(rows.begin(), rows.end(), 0);
  PolicyMetrics metrics;
  Team::lead(options.threads, [&](Team& team) {
    metrics = gradient->compute(rollout, rows.data(), rows.size(), options.loss, team);
    metrics.grad_norm = clip_norm(gradient->gradient(), n_parameters, options.max_grad_norm, team);
    descend(gradient->parameters(), gradient->gradient(), n_parameters, optimizer, team);
  });
  return metrics;
}

}  // namespace sharpwave
