// A policy at play: actions for observations, with their log-probabilities and values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/learn/policy.hpp"

namespace sharpwave {

// What act() writes: `choices` of discrete actions, otherwise `moves`.
struct Acted {
  std::int64_t* choices;  // [n, n_actions]
  float* moves;           // the same
  float* log_probs;       // [n]
  float* values;          // [n]; null where they are not wanted
};

// Memory that is kept between calls, so each thread has one of its own.
class PolicyActor {
 public:
  explicit PolicyActor(const Policy& policy) : policy_(policy) {}

  // For obs [n, n_inputs]. masks [n, n_outputs] are 0 where an option is forbidden; may be null.
  // Without draws actions are the most likely ones. Values are those of a critic with the same
  // inputs.
  void act(const float* parameters, const float* obs, std::size_t n, const std::uint8_t* masks,
           std::optional<Draws> draws, const Acted& acted);
  // For inputs [n, n_critic_inputs] of the critic.
  void values(const float* parameters, const float* inputs, std::size_t n, float* values);

 private:
  void act_on_chunk(const float* parameters, const float* obs, std::size_t n,
                    const std::uint8_t* masks, const Draws* draws, const Acted& acted);

  const Policy& policy_;
  MlpMemory network_;
  HeadMemory head_;
  Matrix actions_, masks_;
};

}  // namespace sharpwave
