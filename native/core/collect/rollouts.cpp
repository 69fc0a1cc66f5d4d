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

}  // namespace

Rollouts::Range::Range(const Policy& policy, std::size_t begin, std::size_t end,
                       std::size_t obs_size)
    : begin(begin),
      end(end),
      actor(policy),
      final_obs((end - begin) * obs_size),
      final_values(end - begin) {}

Rollouts::Rollouts(VectorEnv* env, const Policy* policy, const RolloutOptions& options)
    : env_(env),
      policy_(policy),
      options_(options),
      shape_{options.n_steps, env->size(), env->spec().obs_size, env->spec().n_actions > 0,
             options.is_valued},
      last_obs_(shape_.n_envs * shape_.obs_size),
      forces_(shape_.is_discrete ? 0 : shape_.n_envs),
      final_obs_(shape_.n_envs * shape_.obs_size),
      last_values_(shape_.n_envs),
      rewards_(shape_.n_envs),
      episode_returns_(shape_.n_envs),
      episode_lengths_(shape_.n_envs) {
  if (options.n_steps == 0) throw std::invalid_argument("n_steps must be at least 1, got 0");
  if (!env->is_ready()) throw std::invalid_argument("env must be reset before its first rollout");
  if (env->autoreset() != Autoreset::same_step) {
    throw std::invalid_argument("env must reset itself in the step that ends an episode");
  }
  const Head& head = policy->head();
  const std::size_t outputs =
      shape_.is_discrete ? static_cast<std::size_t>(env->spec().n_actions) : 1;
  if (policy->n_inputs() != shape_.obs_size || head.n_actions() != 1 ||
      head.n_outputs() != outputs || (head.n_log_stds() == 0) != shape_.is_discrete) {
    throw std::invalid_argument("the policy must take the observations and give the actions of " +
                                std::string(env->spec().id));
  }
  // Whole vectors of environments for each thread.
  const std::size_t threads = std::max<std::size_t>(options.threads, 1);
  const std::size_t vectors = (shape_.n_envs + kEnvLanes - 1) / kEnvLanes;
  const std::size_t per_range = (vectors + threads - 1) / threads * kEnvLanes;
  for (std::size_t begin = 0; begin < shape_.n_envs; begin += per_range) {
    ranges_.push_back(std::make_unique<Range>(
        *policy, begin, std::min(begin + per_range, shape_.n_envs), shape_.obs_size));
  }
}

std::unique_ptr<CollectedRollout> Rollouts::collect(const float* parameters,
                                                    const std::atomic<bool>& stops) {
  auto rollout = std::make_unique<CollectedRollout>(shape_);
  env_->observe(rollout->obs.data(), rollout->starts.data());
  const Philox random(options_.seed, count_++);
  std::vector<std::exception_ptr> errors(ranges_.size());
  ThreadPool::shared().run(ranges_.size(), ranges_.size(), [&](std::size_t i) {
    try {
      collect_range(parameters, random, stops, ranges_[i].get(), rollout.get());
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
    const float* obs;
  };
  std::vector<Ended> all;
  for (const auto& range : ranges_) {
    const float* obs = range->episode_obs.data();
    for (const Episode& episode : range->episodes) {
      all.push_back({episode, obs});
      obs += shape_.obs_size;
    }
  }
  std::sort(all.begin(), all.end(),
            [](const Ended& a, const Ended& b) { return a.episode.row < b.episode.row; });
  rollout->final_obs.reserve(all.size() * shape_.obs_size);
  for (const Ended& ended : all) {
    rollout->episode_returns.push_back(ended.episode.total);
    rollout->episode_lengths.push_back(ended.episode.length);
    rollout->final_obs.insert(rollout->final_obs.end(), ended.obs, ended.obs + shape_.obs_size);
  }
}

void Rollouts::collect_range(const float* parameters, const Philox& random,
                             const std::atomic<bool>& stops, Range* range,
                             CollectedRollout* rollout) {
  range->episodes.clear();
  range->episode_obs.clear();
  for (std::size_t t = 0; t < shape_.n_steps; ++t) {
    if (stops.load(std::memory_order_relaxed)) return;
    act(parameters, random, t, range, rollout);
    step(parameters, t, range, rollout);
  }
  if (!shape_.is_valued) return;
  range->actor.values(parameters, last_obs_.data() + range->begin * shape_.obs_size,
                      range->end - range->begin, last_values_.data() + range->begin);
}

void Rollouts::act(const float* parameters, const Philox& random, std::size_t t, Range* range,
                   CollectedRollout* rollout) {
  const std::size_t n = range->end - range->begin, first = t * shape_.n_envs + range->begin;
  float* log_probs = rollout->log_probs.data() + first;
  float* values = shape_.is_valued ? rollout->values.data() + first : nullptr;
  const Acted acted = {
      .choices = shape_.is_discrete ? rollout->choices.data() + first : nullptr,
      .moves = shape_.is_discrete ? nullptr : rollout->moves.data() + first,
      .log_probs = log_probs,
      .values = values,
  };
  range->actor.act(parameters, rollout->obs.data() + first * shape_.obs_size, n, {random, first},
                   acted);
  if (!all_finite(log_probs, n) || (values != nullptr && !all_finite(values, n))) {
    throw NotFiniteError("weights must give finite log-probabilities and values, got NaN or inf");
  }
}

void Rollouts::step(const float* parameters, std::size_t t, Range* range,
                    CollectedRollout* rollout) {
  const std::size_t begin = range->begin, end = range->end, obs_size = shape_.obs_size;
  const std::size_t row = t * shape_.n_envs;
  const bool is_last = t + 1 == shape_.n_steps;
  const void* actions = rollout->choices.data() + row;
  if (!shape_.is_discrete) {
    const float limit = env_->spec().action_limit;
    for (std::size_t i = begin; i < end; ++i) {
      forces_[i] = std::clamp(rollout->moves[row + i], -limit, limit);
    }
    actions = forces_.data();
  }
  std::uint8_t* terminated = rollout->terminated.data() + row;
  std::uint8_t* truncated = rollout->truncated.data() + row;
  float* obs = is_last ? last_obs_.data() : rollout->obs.data() + (row + shape_.n_envs) * obs_size;
  env_->step_range(begin, end, actions,
                   {obs, rewards_.data(), terminated, truncated, final_obs_.data(),
                    episode_returns_.data(), episode_lengths_.data()});

  std::size_t n_cut = 0;
  for (std::size_t i = begin; i < end; ++i) {
    rollout->rewards[row + i] = static_cast<float>(rewards_[i]);
    const bool ended = (terminated[i] | truncated[i]) != 0;
    if (!is_last) rollout->starts[row + shape_.n_envs + i] = ended;
    if (!ended) continue;
    range->episodes.push_back({row + i, episode_returns_[i], episode_lengths_[i]});
    const float* last = final_obs_.data() + i * obs_size;
    range->episode_obs.insert(range->episode_obs.end(), last, last + obs_size);
    if (terminated[i] == 0 && shape_.is_valued) {
      std::copy_n(last, obs_size, range->final_obs.data() + n_cut++ * obs_size);
    }
  }
  if (n_cut > 0) add_next_values(parameters, row, n_cut, range, rollout);
}

// An episode that was cut goes on in value.
void Rollouts::add_next_values(const float* parameters, std::size_t row, std::size_t n_cut,
                               Range* range, CollectedRollout* rollout) {
  range->actor.values(parameters, range->final_obs.data(), n_cut, range->final_values.data());
  const float* value = range->final_values.data();
  for (std::size_t i = row + range->begin; i < row + range->end; ++i) {
    if (rollout->truncated[i] != 0 && rollout->terminated[i] == 0) {
      rollout->next_values[i] = *value++;
    }
  }
}

void Rollouts::add_advantages(CollectedRollout* rollout) const {
  const std::size_t n = shape_.n_envs, size = shape_.size();
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
