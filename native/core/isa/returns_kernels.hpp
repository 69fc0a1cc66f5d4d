// Kernels of native/core/returns.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sharpwave {

// A rollout in time-major order, element t * n_envs + env.
template <typename T>
struct Rollout {
  const T* rewards;
  const T* values;
  // The value after step t is next_values[t] or, when that is null, values[t + 1], with
  // `bootstrap` [n_envs] after the last step.
  const T* next_values;
  const T* bootstrap;
  // Ends as numbers, 1 - dones the weight of what follows; or, when that is null, as flags:
  // nothing follows a terminated step, and what follows a truncated one (which may be null)
  // belongs to another episode.
  const T* dones;
  const std::uint8_t* terminated;
  const std::uint8_t* truncated;
  std::size_t n_steps;
  std::size_t n_envs;
  T gamma;
  T lam;
};

template <typename T>
struct VtraceWeights {
  const T* log_rhos;
  T rho_bar;
  T c_bar;
  T pg_rho_bar;
};

template <typename T>
struct NStepInputs {
  const T* rewards;
  const T* next_values;
  const std::uint8_t* terminated;
  const std::uint8_t* truncated;
  std::size_t n_steps;
  std::size_t n_envs;
  std::size_t n;
  T gamma;
};

template <typename T>
struct ReturnsKernelsOf {
  void (*gae)(const Rollout<T>& rollout, T* advantages, T* returns);
  void (*vtrace)(const Rollout<T>& rollout, const VtraceWeights<T>& weights, T* vs,
                 T* pg_advantages);
  void (*n_step_returns)(const NStepInputs<T>& inputs, T* returns);
  // rollout.values is not read; bootstrap is the return after the last step.
  void (*discounted_returns)(const Rollout<T>& rollout, T* scratch, T* returns);
};

struct ReturnsKernels {
  ReturnsKernelsOf<float> f32;
  ReturnsKernelsOf<double> f64;
};

}  // namespace sharpwave
