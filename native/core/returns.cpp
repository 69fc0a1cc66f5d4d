#include "core/returns.hpp"

namespace sharpwave {

template <>
const ReturnsKernelsOf<float>& returns_kernels(const Kernels& table) {
  return table.returns.f32;
}

template <>
const ReturnsKernelsOf<double>& returns_kernels(const Kernels& table) {
  return table.returns.f64;
}

template <typename T>
void gae_env_major(const Rollout<T>& rollout, T* advantages, T* returns, const Kernels& table) {
  const auto gae = returns_kernels<T>(table).gae;
  Rollout<T> one = rollout;
  one.n_envs = 1;
  for (std::size_t env = 0; env < rollout.n_envs; ++env) {
    const std::size_t start = env * rollout.n_steps;
    one.rewards = rollout.rewards + start;
    one.values = rollout.values + start;
    one.bootstrap = rollout.bootstrap + env;
    if (rollout.dones != nullptr) one.dones = rollout.dones + start;
    if (rollout.terminated != nullptr) one.terminated = rollout.terminated + start;
    gae(one, advantages + start, returns + start);
  }
}

template void gae_env_major(const Rollout<float>&, float*, float*, const Kernels&);
template void gae_env_major(const Rollout<double>&, double*, double*, const Kernels&);

}  // namespace sharpwave
