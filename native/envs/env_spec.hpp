// What an environment is, apart from its dynamics.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sharpwave {

constexpr std::size_t kMostVariables = 4;
constexpr std::size_t kMostObs = 6;

struct EnvSpec {
  const char* id;          // Gymnasium's
  std::size_t variables;   // of the state
  std::size_t obs_size;    // of an observation
  std::int64_t n_actions;  // 0: an action is one real number
  float action_limit;      // of which the action space goes from - to +; 0 for discrete actions
  std::int64_t time_limit;
  // A state at the start of an episode is uniform between these.
  double start_low[kMostVariables];
  double start_high[kMostVariables];
  bool start_in_float32;  // rounded to float32, as Gymnasium does in Acrobot
  const char* option;     // the one argument that Gymnasium's constructor has, "" for none
  double option_default;
  double step_ns;  // a rough time for one step, to decide about threads
};

}  // namespace sharpwave
