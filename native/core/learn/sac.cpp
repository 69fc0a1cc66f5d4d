#include "core/learn/sac.hpp"

#include <cmath>
#include <numeric>

namespace sharpwave {
namespace {

double mean_of(const std::vector<float>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
}

}  // namespace

SacMetrics SoftActorCritic::step(const ContinuousRows& rows, const Noise& noise,
                                 const SacOptions& options, const SacOptimizers& optimizers,
                                 float* td_errors, Team& team) {
  const std::size_t n_actor = actor_.n_parameters(), n_critics = critics_.n_parameters();
  SacMetrics metrics{};
  sample(rows, noise, team);
  metrics.entropy = -mean_of(log_probs_);
  const float alpha = options.learns_alpha ? std::exp(*memory_.log_alpha) : options.alpha;
  metrics.alpha = static_cast<double>(alpha);
  if (options.learns_alpha) {
    const double surplus = metrics.entropy - static_cast<double>(options.target_entropy);
    metrics.alpha_loss = step_alpha(surplus, optimizers.alpha, team);
  }

  // The critics follow what the policy would earn from the next state on.
  metrics.q_value = find_targets(rows, alpha, team);
  metrics.critic_loss = critics_.regress(memory_.critics, x_, wanted_.data(), rows, 0.5f,
                                         &critics_gradient_, td_errors, team);
  take_step(memory_.critics, memory_.critics_grad, n_critics, options.max_grad_norm,
            optimizers.critics, team);

  // The actor follows the critics.
  metrics.actor_loss = climb(rows, alpha, team);
  take_step(memory_.actor, memory_.actor_grad, n_actor, options.max_grad_norm, optimizers.actor,
            team);

  if (options.tau > 0.0f) follow(memory_.targets, memory_.critics, n_critics, options.tau, team);
  return metrics;
}

void SoftActorCritic::sample(const ContinuousRows& rows, const Noise& noise, Team& team) {
  const std::size_t n_obs = actor_.n_obs(), n_actions = actor_.n_actions();
  lanes_ = Lanes(rows.n);
  if (now_.size() < lanes_.count()) {
    now_.resize(lanes_.count());
    next_.resize(lanes_.count());
  }
  for (Matrix* x : {&x_, &new_x_, &next_x_}) x->reshape(rows.n, n_obs + n_actions);
  log_probs_.resize(rows.n);
  next_log_probs_.resize(rows.n);
  team.run(2 * lanes_.count(), [&](std::size_t task) {
    const bool is_next = task % 2 == 1;
    const std::size_t lane = task / 2, first = lanes_.first(lane), n = lanes_.size(lane);
    const float* obs = is_next ? rows.next_obs : rows.obs;
    SquashedPass& pass = is_next ? next_[lane] : now_[lane];
    std::vector<float>& log_probs = is_next ? next_log_probs_ : log_probs_;
    noise.read(is_next, rows.n * n_actions, first * n_actions, n * n_actions,
               actor_.noise_of(n, &pass));
    actor_.sample(memory_.actor, obs + first * n_obs, n, &pass, log_probs.data() + first);
    join_rows(obs + first * n_obs, n_obs, pass.actions.data(), n_actions, n,
              (is_next ? next_x_ : new_x_).row(first));
    if (!is_next) {
      join_rows(obs + first * n_obs, n_obs, rows.actions + first * n_actions, n_actions, n,
                x_.row(first));
    }
  });
}

double SoftActorCritic::step_alpha(double surplus, Adam* optimizer, Team& team) {
  const double loss = static_cast<double>(*memory_.log_alpha) * surplus;
  *memory_.log_alpha_grad = static_cast<float>(surplus);
  descend(memory_.log_alpha, memory_.log_alpha_grad, 1, optimizer, team);
  return loss;
}

double SoftActorCritic::find_targets(const ContinuousRows& rows, float alpha, Team& team) {
  const Matrix& values = critics_.forward(memory_.targets, next_x_, critics_.n(), team);
  wanted_.resize(rows.n);
  find_least(values, wanted_.data(), &which_);
  for (std::size_t i = 0; i < rows.n; ++i) {
    const float soft_value = wanted_[i] - alpha * next_log_probs_[i];
    wanted_[i] = rows.rewards[i] + rows.discounts[i] * soft_value;
  }
  return mean_of(wanted_);
}

double SoftActorCritic::climb(const ContinuousRows& rows, float alpha, Team& team) {
  const std::size_t n_obs = actor_.n_obs(), n_actions = actor_.n_actions();
  const float share = 1.0f / static_cast<float>(rows.n);
  const Matrix& values = critics_.forward(memory_.critics, new_x_, critics_.n(), team);
  least_.resize(rows.n);
  find_least(values, least_.data(), &which_);
  critics_.input_gradient(memory_.critics, which_, -share, n_obs, &action_grad_, team);
  actor_gradient_.begin(lanes_.count(), team.size() == 1);
  team.run(lanes_.count(), [&](std::size_t lane) {
    const std::size_t first = lanes_.first(lane);
    actor_.backward(memory_.actor, rows.obs + first * n_obs, lanes_.size(lane),
                    action_grad_.data() + first * n_actions, alpha * share,
                    actor_gradient_.lane(lane), actor_gradient_.adds(lane), &now_[lane]);
  });
  actor_gradient_.end(team);
  return static_cast<double>(alpha) * mean_of(log_probs_) - mean_of(least_);
}

}  // namespace sharpwave
