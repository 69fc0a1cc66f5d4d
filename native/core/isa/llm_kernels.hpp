// Kernels of the language-model primitives.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sharpwave {

enum class KlEstimator { k1, k2, k3, weighted };

template <typename T>
struct LlmKernelsOf {
  // The sum over n tokens of the estimator, in double. Tokens where mask is 0 do not count; mask
  // may be null.
  double (*token_kl)(const T* log_p, const T* log_q, const std::uint8_t* mask, std::size_t n,
                     KlEstimator estimator);
  // (r - mean) / population standard deviation for each group; 0 where that deviation is below
  // 1e-8.
  void (*group_advantages)(const T* rewards, std::size_t n_groups, std::size_t group_size,
                           T* advantages);
};

struct LlmKernels {
  LlmKernelsOf<float> f32;
  LlmKernelsOf<double> f64;
};

}  // namespace sharpwave
