// Returns and advantages beyond one kernel call.
#pragma once

#include "core/isa/kernels.hpp"

namespace sharpwave {

template <typename T>
const ReturnsKernelsOf<T>& returns_kernels(const Kernels& table = kernels());

// GAE of n_envs trajectories stored one after the other: element env * n_steps + t, bootstrap
// [n_envs].
template <typename T>
void gae_env_major(const Rollout<T>& rollout, T* advantages, T* returns,
                   const Kernels& table = kernels());

}  // namespace sharpwave
