#include "core/collect/rollouts.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <string>

#include "core/returns.hpp"
#include "core/thread_pool.hpp"

namespace sharpwave {
namespace {

bool all_finite(const float* x, std::size_t n) {
  float zero = 0;
  for (std::size_t i = 0; i < n; ++i) zero += x[i] * 0.0f;
  return zero == 0.0f;
}

// Flags of environments `begin` to `end` - 1, for each of their agents.
void spread(const std::vector<std::uint8_t>& flags, std::size_t begin, std::size_t end,
            std::size_t n_agents, std::uint8_t* rows) {
  for (std::size_t i = begin; i < end; ++i) std::fill_n(rows + i * n_agents, n_agents, flags[i]);
}

RolloutShape shape_of(const VectorEnv& env, const RolloutOptions& options) {
  const EnvSpec& spec = env.spec();
  return {options.n_steps,  env.size(),         spec.n_agents,    spec.obs_size,
          spec.action_size, spec.n_actions > 0, options.is_valued};
}

}  // namespace

PolicyView view_of(const EnvSpec& spec, const RolloutOptions& options) {
  return {spec.obs_size, spec.n_agents, options.has_agent_id, options.critic};
}

Rollouts::Range::Range(const Policy& policy, const PolicyView& view, std::size_t begin,
                       std::size_t end)
    : begin(begin),
      end(end),
      actor(policy, view),
      final_obs((end - begin) * view.obs_row()),
      final_values((end - begin) * view.n_agents) {}

Rollouts::Rollouts(VectorEnv* env, const Policy* policy, const RolloutOptions& options)
    : env_(env),
      options_(options),
      view_(view_of(env->spec(), options)),
      shape_(shape_of(*env, options)),
      last_obs_(shape_.n_rows() * shape_.obs_size),
      forces_(shape_.is_discrete ? 0 : shape_.n_rows() * shape_.action_size),
      final_obs_(shape_.n_rows() * shape_.obs_size),
      last_values_(shape_.n_rows()),
      rewards_(shape_.n_rows()),
      episode_returns_(shape_.n_rows()),
      episode_lengths_(shape_.n_envs),
      terminated_(shape_.n_envs),
      truncated_(shape_.n_envs),
      starts_(shape_.n_envs) {
  if (options.n_steps == 0) throw std::invalid_argument("n_steps must be at least 1, got 0");
  if (!env->is_ready()) throw std::invalid_argument("env must be reset before its first rollout");
  if (env->autoreset() != Autoreset::same_step) {
    throw std::invalid_argument("env must reset itself in the step that ends an episode");
  }
  const Head& head = policy->head();
  const std::size_t outputs =
      shape_.is_discrete ? static_cast<std::size_t>(env->spec().n_actions) : shape_.action_size;
  if (policy->n_inputs() != view_.n_inputs() ||
      policy->n_critic_inputs() != view_.n_critic_inputs() ||
      head.n_actions() != shape_.action_size || head.n_outputs() != outputs ||
      (head.n_log_stds() == 0) != shape_.is_discrete) {
    throw std::invalid_argument("the policy must take the observations and give the actions of " +
                                std::string(env->spec().id));
  }
  // Whole vectors of environments for each thread.
  const std::size_t threads = std::max<std::size_t>(options.threads, 1);
  const std::size_t vectors = (shape_.n_envs + kEnvLanes - 1) / kEnvLanes;
  const std::size_t per_range = (vectors + threads - 1) / threads * kEnvLanes;
  for (std::size_t begin = 0; begin < shape_.n_envs; begin += per_range) {
    ranges_.push_back(
        std::make_unique<Range>(*policy, view_, begin, std::min(begin + per_range, shape_.n_envs)));
  }
}

std::unique_ptr<CollectedRollout> Rollouts::collect(const ActingWeights& weights,
                                                    const std::atomic<bool>& stops) {
  auto rollout = std::make_unique<CollectedRollout>(shape_);
  env_->observe(rollout->obs.data(), starts_.data());
  spread(starts_, 0, shape_.n_envs, shape_.n_agents, rollout->starts.data());
  const Philox random(options_.seed, count_++);
  std::vector<std::exception_ptr> errors(ranges_.size());
  ThreadPool::shared().run(ranges_.size(), ranges_.size(), [&](std::size_t i) {
    try {
      collect_range(weights, random, stops, ranges_[i].get(), rollout.get());
    } catch (...) {
      errors[i] = std::current_exception();
    }
  });
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  if (stops.load(std::memory_order_relaxed)) return nullptr;
  if (shape_.is_valued) add_advantages(rollout.get());
  add_episodes(rollout.get());
  std::copy(last_obs_.begin(), last_obs_.end(), rollout->last_obs.begin());
  return rollout;
}

void Rollouts::add_episodes(CollectedRollout* rollout) const {
  struct Ended {
    Episode episode;
    const double* returns;
    const float* obs;
  };
  const std::size_t n_agents = shape_.n_agents, obs_row = view_.obs_row();
  std::vector<Ended> all;
  for (const auto& range : ranges_) {
    for (std::size_t i = 0; i < range->episodes.size(); ++i) {
      all.push_back({range->episodes[i], range->episode_returns.data() + i * n_agents,
                     range->episode_obs.data() + i * obs_row});
    }
  }
  std::sort(all.begin(), all.end(),
            [](const Ended& a, const Ended& b) { return a.episode.row < b.episode.row; });
  rollout->episode_returns.reserve(all.size() * n_agents);
  rollout->final_obs.reserve(all.size() * obs_row);
  for (const Ended& ended : all) {
    rollout->episode_returns.insert(rollout->episode_returns.end(), ended.returns,
                                    ended.returns + n_agents);
    rollout->episode_lengths.push_back(ended.episode.length);
    rollout->final_obs.insert(rollout->final_obs.end(), ended.obs, ended.obs + obs_row);
  }
}

void Rollouts::collect_range(const ActingWeights& weights, const Philox& random,
                             const std::atomic<bool>& stops, Range* range,
                             CollectedRollout* rollout) {
  range->episodes.clear();
  range->episode_returns.clear();
  range->episode_obs.clear();
  for (std::size_t t = 0; t < shape_.n_steps; ++t) {
    if (stops.load(std::memory_order_relaxed)) return;
    act(weights, random, t, range, rollout);
    step(weights, t, range, rollout);
  }
  if (!shape_.is_valued) return;
  const std::size_t first = range->begin * shape_.n_agents;
  range->actor.values(weights, last_obs_.data() + first * shape_.obs_size,
                      (range->end - range->begin) * shape_.n_agents, last_values_.data() + first);
}

void Rollouts::act(const ActingWeights& weights, const Philox& random, std::size_t t, Range* range,
                   CollectedRollout* rollout) {
  const std::size_t n = (range->end - range->begin) * shape_.n_agents;
  const std::size_t first = t * shape_.n_rows() + range->begin * shape_.n_agents;
  float* log_probs = rollout->log_probs.data() + first;
  float* values = shape_.is_valued ? rollout->values.data() + first : nullptr;
  const Acted acted = {
      .choices = shape_.is_discrete ? rollout->choices.data() + first : nullptr,
      .moves = shape_.is_discrete ? nullptr : rollout->moves.data() + first * shape_.action_size,
      .log_probs = log_probs,
      .values = values,
  };
  range->actor.act(weights, rollout->obs.data() + first * shape_.obs_size, n, {random, first},
                   acted);
  if (!all_finite(log_probs, n) || (values != nullptr && !all_finite(values, n))) {
    throw NotFiniteError("weights must give finite log-probabilities and values, got NaN or inf");
  }
}

void Rollouts::step(const ActingWeights& weights, std::size_t t, Range* range,
                    CollectedRollout* rollout) {
  const std::size_t begin = range->begin, end = range->end, n_agents = shape_.n_agents;
  const std::size_t row = t * shape_.n_rows(), obs_row = view_.obs_row();
  const bool is_last = t + 1 == shape_.n_steps;
  const void* actions = rollout->choices.data() + row;
  if (!shape_.is_discrete) {
    const float low = env_->spec().action_low, high = env_->spec().action_high;
    const float* moves = rollout->moves.data() + row * shape_.action_size;
    const std::size_t size = env_->spec().action_row();
    for (std::size_t i = begin * size; i < end * size; ++i) {
      forces_[i] = std::clamp(moves[i], low, high);
    }
    actions = forces_.data();
  }
  float* obs =
      is_last ? last_obs_.data() : rollout->obs.data() + (row + shape_.n_rows()) * shape_.obs_size;
  env_->step_range(begin, end, actions,
                   {obs, rewards_.data(), terminated_.data(), truncated_.data(), final_obs_.data(),
                    episode_returns_.data(), episode_lengths_.data()});
  write_rewards(row, *range, rollout);
  spread(terminated_, begin, end, n_agents, rollout->terminated.data() + row);
  spread(truncated_, begin, end, n_agents, rollout->truncated.data() + row);

  std::size_t n_cut = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const bool ended = (terminated_[i] | truncated_[i]) != 0;
    if (!is_last) {
      std::fill_n(rollout->starts.data() + row + shape_.n_rows() + i * n_agents, n_agents, ended);
    }
    if (!ended) continue;
    range->episodes.push_back({t * shape_.n_envs + i, episode_lengths_[i]});
    const double* returns = episode_returns_.data() + i * n_agents;
    range->episode_returns.insert(range->episode_returns.end(), returns, returns + n_agents);
    const float* last = final_obs_.data() + i * obs_row;
    range->episode_obs.insert(range->episode_obs.end(), last, last + obs_row);
    if (terminated_[i] == 0 && shape_.is_valued) {
      std::copy_n(last, obs_row, range->final_obs.data() + n_cut++ * obs_row);
    }
  }
  if (n_cut > 0) add_next_values(weights, row, n_cut, range, rollout);
}

void Rollouts::write_rewards(std::size_t row, const Range& range, CollectedRollout* rollout) const {
  const std::size_t n_agents = shape_.n_agents;
  float* to = rollout->rewards.data() + row;
  for (std::size_t i = range.begin; i < range.end; ++i) {
    const double* rewards = rewards_.data() + i * n_agents;
    double mean = 0.0;
    for (std::size_t j = 0; options_.is_team_paid && j < n_agents; ++j) mean += rewards[j];
    mean /= static_cast<double>(n_agents);
    for (std::size_t j = 0; j < n_agents; ++j) {
      to[i * n_agents + j] = static_cast<float>(options_.is_team_paid ? mean : rewards[j]);
    }
  }
}

// An episode that was cut goes on in value.
void Rollouts::add_next_values(const ActingWeights& weights, std::size_t row, std::size_t n_cut,
                               Range* range, CollectedRollout* rollout) {
  const std::size_t n_agents = shape_.n_agents;
  range->actor.values(weights, range->final_obs.data(), n_cut * n_agents,
                      range->final_values.data());
  const float* value = range->final_values.data();
  for (std::size_t i = row + range->begin * n_agents; i < row + range->end * n_agents; ++i) {
    if (rollout->truncated[i] != 0 && rollout->terminated[i] == 0) {
      rollout->next_values[i] = *value++;
    }
  }
}

void Rollouts::add_advantages(CollectedRollout* rollout) const {
  const std::size_t n = shape_.n_rows(), size = shape_.size();
  for (std::size_t i = 0; i < size; ++i) {
    if (rollout->truncated[i] != 0 && rollout->terminated[i] == 0) continue;
    rollout->next_values[i] = i + n < size ? rollout->values[i + n] : last_values_[i + n - size];
  }
  const Rollout<float> given = {.rewards = rollout->rewards.data(),
                                .values = rollout->values.data(),
                                .next_values = rollout->next_values.data(),
                                .bootstrap = nullptr,
                                .dones = nullptr,
                                .terminated = rollout->terminated.data(),
                                .truncated = rollout->truncated.data(),
                                .n_steps = shape_.n_steps,
                                .n_envs = n,
                                .gamma = options_.gamma,
                                .lam = options_.gae_lambda};
  returns_kernels<float>().gae(given, rollout->advantages.data(), rollout->returns.data());
}

}  // namespace sharpwave
