#include "core/learn/td3.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/isa/kernels.hpp"

namespace sharpwave {

Td3Metrics Td3::step(const ContinuousRows& rows, const Noise& noise, const Td3Options& options,
                     const Td3Optimizers& optimizers, float* td_errors, Team& team) {
  const std::size_t n_actor = actor_.n_parameters(), n_critics = critics_.n_parameters();
  Td3Metrics metrics{};

  // The critics follow what the slow actor would earn from the next state on.
  find_next_actions(rows, noise, options, team);
  metrics.q_value = find_targets(rows, team);
  metrics.critic_loss = critics_.regress(memory_.critics, x_, wanted_.data(), rows, 1.0f,
                                         &critics_gradient_, td_errors, team);
  take_step(memory_.critics, memory_.critics_grad, n_critics, options.max_grad_norm,
            optimizers.critics, team);
  if (!options.moves_actor) return metrics;

  // The actor follows the first critic, and the target networks follow both.
  metrics.actor_loss = climb(rows, options.bc_weight, team);
  take_step(memory_.actor, memory_.actor_grad, n_actor, options.max_grad_norm, optimizers.actor,
            team);
  follow(memory_.target_actor, memory_.actor, n_actor, options.tau, team);
  follow(memory_.target_critics, memory_.critics, n_critics, options.tau, team);
  return metrics;
}

void Td3::find_next_actions(const ContinuousRows& rows, const Noise& noise,
                            const Td3Options& options, Team& team) {
  const std::size_t n_obs = actor_.n_obs(), n_actions = actor_.n_actions();
  lanes_ = Lanes(rows.n);
  if (passes_.size() < lanes_.count()) passes_.resize(lanes_.count());
  for (Matrix* x : {&x_, &next_x_, &new_x_}) x->reshape(rows.n, n_obs + n_actions);
  noise_.reshape(rows.n, n_actions);
  team.run(lanes_.count(), [&](std::size_t lane) {
    const std::size_t first = lanes_.first(lane), n = lanes_.size(lane);
    const float* next_obs = rows.next_obs + first * n_obs;
    DeterministicPass& pass = passes_[lane];
    actor_.forward(memory_.target_actor, next_obs, n, &pass);
    if (options.target_noise > 0.0f) {
      float* drawn = noise_.row(first);
      noise.read(0, rows.n * n_actions, first * n_actions, n * n_actions, drawn);
      for (std::size_t i = 0; i < n * n_actions; ++i) {
        const float change =
            std::clamp(options.target_noise * drawn[i], -options.noise_clip, options.noise_clip);
        float& action = pass.actions.data()[i];
        action = std::clamp(action + change, -1.0f, 1.0f);
      }
    }
    join_rows(next_obs, n_obs, pass.actions.data(), n_actions, n, next_x_.row(first));
    join_rows(rows.obs + first * n_obs, n_obs, rows.actions + first * n_actions, n_actions, n,
              x_.row(first));
  });
}

double Td3::find_targets(const ContinuousRows& rows, Team& team) {
  const Matrix& values = critics_.forward(memory_.target_critics, next_x_, critics_.n(), team);
  wanted_.resize(rows.n);
  find_least(values, wanted_.data(), &which_);
  double sum = 0.0;
  for (std::size_t i = 0; i < rows.n; ++i) {
    wanted_[i] = rows.rewards[i] + rows.discounts[i] * wanted_[i];
    sum += static_cast<double>(wanted_[i]);
  }
  return sum / static_cast<double>(rows.n);
}

double Td3::climb(const ContinuousRows& rows, const std::optional<float>& bc_weight, Team& team) {
  const std::size_t n_obs = actor_.n_obs(), n_actions = actor_.n_actions();
  team.run(lanes_.count(), [&](std::size_t lane) {
    const std::size_t first = lanes_.first(lane), n = lanes_.size(lane);
    const float* obs = rows.obs + first * n_obs;
    const Matrix& actions = actor_.forward(memory_.actor, obs, n, &passes_[lane]);
    join_rows(obs, n_obs, actions.data(), n_actions, n, new_x_.row(first));
  });
  const Matrix& values = critics_.forward(memory_.critics, new_x_, 1, team);
  double sum = 0.0, size = 0.0;
  for (std::size_t i = 0; i < rows.n; ++i) {
    sum += static_cast<double>(values.data()[i]);
    size += static_cast<double>(std::abs(values.data()[i]));
  }
  const double share = 1.0 / static_cast<double>(rows.n);
  const double scale = bc_weight ? static_cast<double>(*bc_weight) / (share * size) : 1.0;
  which_.assign(rows.n, 0);
  critics_.input_gradient(memory_.critics, which_, static_cast<float>(-scale * share), n_obs,
                          &action_grad_, team);
  double loss = -scale * share * sum;
  if (bc_weight) loss += clone(rows);

  actor_gradient_.begin(lanes_.count(), team.size() == 1);
  team.run(lanes_.count(), [&](std::size_t lane) {
    const std::size_t first = lanes_.first(lane);
    actor_.backward(memory_.actor, rows.obs + first * n_obs, lanes_.size(lane),
                    action_grad_.row(first), actor_gradient_.lane(lane), actor_gradient_.adds(lane),
                    &passes_[lane]);
  });
  actor_gradient_.end(team);
  return loss;
}

double Td3::clone(const ContinuousRows& rows) {
  const std::size_t n_obs = actor_.n_obs(), n_actions = actor_.n_actions();
  const float share = 1.0f / static_cast<float>(rows.n * n_actions);
  double sum = 0.0;
  for (std::size_t i = 0; i < rows.n; ++i) {
    for (std::size_t j = 0; j < n_actions; ++j) {
      const float error = new_x_.row(i)[n_obs + j] - rows.actions[i * n_actions + j];
      action_grad_.row(i)[j] += 2.0f * share * error;
      sum += static_cast<double>(error * error);
    }
  }
  return sum * static_cast<double>(share);
}

}  // namespace sharpwave
