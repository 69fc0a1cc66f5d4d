// Rollouts of a policy in native environments, without the interpreter in between: what
// src/sharpwave/collect/on_policy.py does step by step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/learn/policy_actor.hpp"
#include "envs/vector_env.hpp"

namespace sharpwave {

// Arrays of T steps of N environments, time first.
struct RolloutColumns {
  float* obs;                // [T, N, obs_size], before the step
  std::int64_t* choices;     // [T, N], of discrete actions
  float* moves;              // [T, N], of continuous ones, as the policy gave them
  float* log_probs;          // [T, N]
  float* values;             // [T, N]
  float* rewards;            // [T, N]
  std::uint8_t* terminated;  // [T, N], 0 or 1
  std::uint8_t* truncated;   // [T, N], 0 or 1
  std::uint8_t* starts;      // [T, N], 1 where obs is an episode's first
  float* next_values;        // [T, N], of what a step led to; not written where it terminated
};

// Where the environments stand between rollouts.
struct RolloutPlace {
  float* obs;             // [N, obs_size], to act on next
  std::uint8_t* starts;   // [N], 1 where that is an episode's first
  double* returns;        // [N], of the episodes in flight
  std::int64_t* lengths;  // [N]
};

struct FinishedEpisodes {
  std::vector<double> returns;
  std::vector<std::int64_t> lengths;
};

// Actions of step t are drawn by call `first_call` + t of the generator of a seed.
struct RolloutDraws {
  std::uint64_t seed, first_call;
};

// What continuous actions are clipped to.
struct ActionBounds {
  float low, high;
};

class RolloutCollector {
 public:
  // The environments reset themselves in the step that ends an episode, and were reset.
  RolloutCollector(VectorEnv* env, PolicyActor* actor, ActionBounds bounds);

  // Takes `n_steps` steps; fewer when the policy says something that is not finite. Returns how
  // many were taken.
  std::size_t collect(const float* parameters, RolloutDraws draws, std::size_t n_steps,
                      const RolloutColumns& columns, const RolloutPlace& place,
                      FinishedEpisodes* finished);

 private:
  bool act(const float* parameters, RolloutDraws draws, std::size_t t,
           const RolloutColumns& columns);
  const void* actions(std::size_t t, const RolloutColumns& columns);
  void step(std::size_t t, const RolloutColumns& columns, const RolloutPlace& place,
            FinishedEpisodes* finished);
  void value_truncated(const float* parameters, std::size_t t, const RolloutColumns& columns);

  VectorEnv& env_;
  PolicyActor& actor_;
  std::size_t n_, obs_size_;
  std::vector<double> rewards_;
  ActionBounds bounds_;
  std::vector<float> clipped_, final_obs_, last_obs_, last_values_;
};

}  // namespace sharpwave
