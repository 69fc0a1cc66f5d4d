// A policy at play in environments that take one action each, on columns: few rows pass through its
// networks without being packed.
#pragma once

#include <cstddef>

#include "core/learn/policy.hpp"
#include "core/learn/policy_actor.hpp"

namespace sharpwave {

// Memory that is kept between calls, so each thread has one of its own.
class ColumnActor {
 public:
  // The policy makes one choice or one move.
  explicit ColumnActor(const Policy& policy) : policy_(policy) {}

  // Draws actions for obs [n, n_inputs], with the numbers of PolicyActor. Without memory for values
  // there are none.
  void act(const float* parameters, const float* obs, std::size_t n, const Draws& draws,
           const Acted& acted);
  void values(const float* parameters, const float* obs, std::size_t n, float* values);

 private:
  void act_on_chunk(const float* parameters, std::size_t n, const Draws& draws, const Acted& acted);
  void values_of_chunk(const float* parameters, std::size_t n, float* values);
  void choose(std::size_t n, const Draws& draws, const Acted& acted) const;

  const Policy& policy_;
  Matrix obs_, output_, actions_;
  MlpMemory network_;
  HeadMemory head_;
};

}  // namespace sharpwave
