// Kernels of the policies that learn from replay (native/core/learn).
#pragma once

#include <cstddef>

namespace sharpwave {

// n numbers each, a multiple of kLanes.
struct Squashed {
  const float* mean;
  float* log_std;      // becomes what is between the bounds
  const float* noise;  // of a standard normal variable
  float* action;       // tanh(u), u = mean + spread
  float* spread;       // exp(log_std) noise
  float* density;      // log-probability of the action
};

struct ReplayKernels {
  void (*squash)(const Squashed& squashed, float lowest_log_std, float highest_log_std,
                 std::size_t n);
  void (*tanh)(float* x, std::size_t n);
};

}  // namespace sharpwave
