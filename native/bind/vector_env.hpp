// The environments under Python's VectorEnv type.
#pragma once

#include <mutex>
#include <vector>

#include "bind/arrays.hpp"
#include "envs/vector_env.hpp"

namespace sharpwave::bind {

// The environments, with what Python's threads share.
struct Envs {
  Envs(const EnvKernels& kernels, std::size_t n, const VectorEnvOptions& options, bool is_multi)
      : env(kernels, n, options), is_multi(is_multi), final_obs(n * kernels.spec.obs_row()) {}

  VectorEnv env;
  bool is_multi;  // arrays have an axis of agents
  std::vector<float> final_obs;
  std::mutex mutex;
  bool is_closed = false;
};

// Holds the environments' mutex for the scope. It is never waited for while the GIL is held.
class EnvLock {
 public:
  explicit EnvLock(Envs* envs) : lock_(envs->mutex, std::try_to_lock) {
    if (lock_.owns_lock()) return;
    const ReleaseGil release;
    lock_.lock();
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

// Those of a VectorEnv, which live as long as it. Throws TypeError for another object, and
// Gymnasium's error where they are closed.
Envs* envs_of(PyObject* vector_env);

}  // namespace sharpwave::bind
