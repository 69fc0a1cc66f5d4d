// What an environment is, apart from its dynamics.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sharpwave {

struct EnvSpec {
  const char* id;                 // Gymnasium's
  std::size_t n_agents = 1;       // that act in one environment at the same time
  std::size_t variables;          // of the state
  std::size_t obs_size;           // of an agent's observation
  std::int64_t n_actions;         // 0: an action is real numbers
  std::size_t action_size = 1;    // how many; 1 for discrete actions
  float action_low, action_high;  // of which the action space is; 0 for discrete actions
  std::int64_t time_limit;
  // A state at the start of an episode is uniform between these, [variables].
  const double* start_low;
  const double* start_high;
  bool start_in_float32;  // rounded to float32, as Gymnasium does in Acrobot
  const char* option;     // the one argument that Gymnasium's constructor has, "" for none
  double option_default;
  double step_ns;  // a rough time for one step, to decide about threads

  // Numbers that the observations and the actions of one environment are.
  constexpr std::size_t obs_row() const { return n_agents * obs_size; }
  constexpr std::size_t action_row() const { return n_agents * action_size; }
};

}  // namespace sharpwave
