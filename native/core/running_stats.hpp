// Running mean and variance.
#pragma once

#include <cstddef>

namespace sharpwave {

// Folds the moments of a batch into running ones (Chan et al.): m2 is the sum of squared deviations
// from the mean. Both counts are positive, or the running one is 0.
inline void merge_moments(double* mean, double* m2, double count, const double* batch_mean,
                          const double* batch_m2, double batch_count, std::size_t dims) {
  const double total = count + batch_count;
  const double weight = batch_count / total;
  for (std::size_t j = 0; j < dims; ++j) {
    const double delta = batch_mean[j] - mean[j];
    mean[j] += delta * weight;
    m2[j] += batch_m2[j] + delta * delta * count * weight;
  }
}

}  // namespace sharpwave
