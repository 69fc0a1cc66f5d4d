// Kernels of running statistics and parameter averages.
#pragma once

#include <cstddef>

namespace sharpwave {

template <typename T>
struct StatsKernelsOf {
  // Per column of batch [n, dims]: the mean and the sum of squared deviations from it. n > 0.
  void (*column_moments)(const T* batch, std::size_t n, std::size_t dims, double* mean, double* m2);
  // (x - mean) * scale per column, held within [-clip, clip].
  void (*normalize)(const T* x, std::size_t n, std::size_t dims, const double* mean,
                    const double* scale, double clip, T* out);
  // target += tau * (source - target)
  void (*polyak)(T* target, const T* source, std::size_t n, T tau);
};

struct StatsKernels {
  StatsKernelsOf<float> f32;
  StatsKernelsOf<double> f64;
};

}  // namespace sharpwave
