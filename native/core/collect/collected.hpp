// A rollout of T steps of N environments with G agents each, time-major: element (t * N + env) * G
// + agent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sharpwave {

struct RolloutShape {
  std::size_t n_steps, n_envs, n_agents, obs_size, action_size;
  bool is_discrete, is_valued;

  // Of one step.
  std::size_t n_rows() const { return n_envs * n_agents; }
  std::size_t size() const { return n_steps * n_rows(); }
  std::size_t n_values() const { return is_valued ? size() : 0; }
};

struct CollectedRollout {
  explicit CollectedRollout(const RolloutShape& shape)
      : shape(shape),
        obs(shape.size() * shape.obs_size),
        choices(shape.is_discrete ? shape.size() : 0),
        moves(shape.is_discrete ? 0 : shape.size() * shape.action_size),
        log_probs(shape.size()),
        rewards(shape.size()),
        values(shape.n_values()),
        next_values(shape.n_values()),
        advantages(shape.n_values()),
        returns(shape.n_values()),
        terminated(shape.size()),
        truncated(shape.size()),
        starts(shape.size()),
        last_obs(shape.n_rows() * shape.obs_size) {}

  RolloutShape shape;
  std::uint64_t version = 0;          // of the weights that acted
  std::vector<float> obs;             // [T, N, G, obs_size], before the step
  std::vector<std::int64_t> choices;  // actions, where they are discrete,
  std::vector<float> moves;  // and where not, [T, N, G, action_size], before they are cut to the
                             // action space
  std::vector<float> log_probs, rewards;
  // Empty where a rollout is not valued.
  std::vector<float> values;
  std::vector<float> next_values;  // of what a step led to, before any reset
  std::vector<float> advantages, returns;
  std::vector<std::uint8_t> terminated, truncated;  // 0 or 1
  std::vector<std::uint8_t> starts;                 // 1 where `obs` is an episode's first
  // Of the episodes that ended, by time and then by environment.
  std::vector<double> episode_returns;  // [episodes, G]
  std::vector<std::int64_t> episode_lengths;
  std::vector<float> final_obs;  // [episodes, G, obs_size], their last observations
  std::vector<float> last_obs;   // [N, G, obs_size], what the last step left to act on
};

}  // namespace sharpwave
