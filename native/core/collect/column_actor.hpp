// A policy at play in native environments, on columns: few rows pass through its networks without
// being packed.
#pragma once

#include <cstddef>

#include "core/collect/policy_view.hpp"
#include "core/learn/policy.hpp"
#include "core/learn/policy_actor.hpp"
#include "core/learn/value_norm.hpp"

namespace sharpwave {

// Weights to act with, and what values are denormalized by.
struct ActingWeights {
  const float* parameters;
  ValueScale scale = {};
};

// Memory that is kept between calls, so each thread has one of its own.
class ColumnActor {
 public:
  // The policy makes one choice, or moves.
  ColumnActor(const Policy& policy, const PolicyView& view) : policy_(policy), view_(view) {}

  // Draws actions for the agents of whole environments, obs [n, obs_size], with the numbers of
  // PolicyActor. Without memory for values there are none.
  void act(const ActingWeights& weights, const float* obs, std::size_t n, const Draws& draws,
           const Acted& acted);
  void values(const ActingWeights& weights, const float* obs, std::size_t n, float* values);

 private:
  void act_on_chunk(const float* parameters, std::size_t n, const Draws& draws, const Acted& acted);
  void values_of_chunk(const ActingWeights& weights, std::size_t n, float* values);
  void joint_values(const ActingWeights& weights, const float* obs, std::size_t n, float* values);
  void choose(std::size_t n, const Draws& draws, const Acted& acted) const;

  const Policy& policy_;
  PolicyView view_;
  Matrix inputs_, output_, actions_;
  MlpMemory network_;
  HeadMemory head_;
};

}  // namespace sharpwave
