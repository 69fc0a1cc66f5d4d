// Kernels of native/core/returns.hpp.
#pragma once

#include <cstddef>

namespace sharpwave {

struct ReturnsKernels {
  // GAE of one trajectory of n steps; next_values[t] is values[t + 1], the last one last_value.
  void (*gae_one_f32)(const float* rewards, const float* values, const float* dones,
                      float last_value, std::size_t n, float gamma, float lam, float* advantages,
                      float* returns);
  void (*gae_one_f64)(const double* rewards, const double* values, const double* dones,
                      double last_value, std::size_t n, double gamma, double lam,
                      double* advantages, double* returns);
};

}  // namespace sharpwave
