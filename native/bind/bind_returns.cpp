// GAE and its relatives. Called positionally by src/sharpwave/primitives/returns/__init__.py, which
// documents them.
#include <algorithm>
#include <memory>
#include <vector>

#include "bind/bindings.hpp"
#include "bind/primitive_args.hpp"
#include "core/returns.hpp"

namespace sharpwave::bind {
namespace {

template <typename T>
void check_trajectory(const ArrayArg<T>& array, const char* name) {
  if (array.ndim() == 1) return;
  throw std::invalid_argument(std::string(name) + " must have shape [T], got " +
                              shape_text(array.ndim(), array.shape()));
}

template <typename T>
PyObject* gae_one(PyObject* const* args) {
  const ArrayArg<T> rewards(args[0], "rewards");
  const ArrayArg<T> values(args[1], "values");
  const DonesArg<T> dones(args[2]);
  const T last_value = as_number<T>(args[3], "last_value");
  const double gamma = as_fraction(args[4], "gamma");
  const double lam = as_fraction(args[5], "lam");
  check_trajectory(rewards, "rewards");
  check_same_shape(values.array(), "values", rewards.array(), "rewards");
  check_same_shape(dones.array(), "dones", rewards.array(), "rewards");
  PairOut<T> out(args[6], 1, rewards.shape(), {rewards.array(), values.array(), dones.array()});
  {
    const MaybeReleaseGil release(0.5 * static_cast<double>(rewards.size()));
    returns_kernels<T>().gae({.rewards = rewards.data(),
                              .values = values.data(),
                              .next_values = nullptr,
                              .bootstrap = &last_value,
                              .dones = dones.numbers(),
                              .terminated = dones.flags(),
                              .truncated = nullptr,
                              .n_steps = rewards.size(),
                              .n_envs = 1,
                              .gamma = static_cast<T>(gamma),
                              .lam = static_cast<T>(lam)},
                             out.first(), out.second());
  }
  return out.finish(rewards.torch());
}

PyObject* compute_gae(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("compute_gae", nargs, 7);
    return all_float32({args[0], args[1]}) ? gae_one<float>(args) : gae_one<double>(args);
  });
}

// rewards must hold n_envs x n_steps numbers, as a matrix or flat.
template <typename T>
void check_env_major(const ArrayArg<T>& rewards, std::size_t n_envs, std::size_t n_steps) {
  const npy_intp matrix[] = {static_cast<npy_intp>(n_envs), static_cast<npy_intp>(n_steps)};
  npy_intp expected = 0;
  const bool fits = !__builtin_mul_overflow(matrix[0], matrix[1], &expected) &&
                    (rewards.ndim() == 1 ? rewards.dim(0) == expected
                                         : rewards.ndim() == 2 && rewards.dim(0) == matrix[0] &&
                                               rewards.dim(1) == matrix[1]);
  if (fits) return;
  throw std::invalid_argument("rewards must hold len(last_values) x n_steps steps, shape " +
                              shape_text(2, matrix) + " or flat, got " +
                              shape_text(rewards.ndim(), rewards.shape()));
}

template <typename T>
PyObject* gae_batched(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("compute_gae_batched", nargs, 8);
    const ArrayArg<T> rewards(args[0], "rewards");
    const ArrayArg<T> values(args[1], "values");
    const DonesArg<T> dones(args[2]);
    const ArrayArg<T> last_values(args[3], "last_values");
    const std::size_t n_steps = as_size(args[4], "n_steps");
    const double gamma = as_fraction(args[5], "gamma");
    const double lam = as_fraction(args[6], "lam");
    if (last_values.ndim() != 1) {
      throw std::invalid_argument("last_values must have shape [E], got " +
                                  shape_text(last_values.ndim(), last_values.shape()));
    }
    check_env_major(rewards, last_values.size(), n_steps);
    check_same_shape(values.array(), "values", rewards.array(), "rewards");
    check_same_shape(dones.array(), "dones", rewards.array(), "rewards");
    PairOut<T> out(args[7], rewards.ndim(), rewards.shape(),
                   {rewards.array(), values.array(), dones.array(), last_values.array()});
    {
      const MaybeReleaseGil release(0.5 * static_cast<double>(rewards.size()));
      gae_env_major<T>({.rewards = rewards.data(),
                        .values = values.data(),
                        .next_values = nullptr,
                        .bootstrap = last_values.data(),
                        .dones = dones.numbers(),
                        .terminated = dones.flags(),
                        .truncated = nullptr,
                        .n_steps = n_steps,
                        .n_envs = last_values.size(),
                        .gamma = static_cast<T>(gamma),
                        .lam = static_cast<T>(lam)},
                       out.first(), out.second());
    }
    return out.finish(rewards.torch());
  });
}

// The arguments that `gae` and `vtrace` share, from `rewards` on: rewards, values, next_values,
// bootstrap, terminated, truncated, gamma, lam.
template <typename T>
class RolloutArgs {
 public:
  explicit RolloutArgs(PyObject* const* args)
      : rewards_(args[0], "rewards"),
        values_(args[1], "values"),
        terminated_(args[4], "terminated") {
    if (rewards_.ndim() < 1)
      throw std::invalid_argument("rewards must have shape [T, N] or [T], got ()");
    check_same_shape(values_.array(), "values", rewards_.array(), "rewards");
    check_same_shape(terminated_.array(), "terminated", rewards_.array(), "rewards");
    if ((args[2] == Py_None) == (args[3] == Py_None)) {
      throw std::invalid_argument("exactly one of next_values and bootstrap must be given");
    }
    if (args[2] != Py_None) {
      next_values_.emplace(args[2], "next_values");
      check_same_shape(next_values_->array(), "next_values", rewards_.array(), "rewards");
    } else {
      bootstrap_.emplace(args[3], "bootstrap");
      check_bootstrap();
    }
    if (args[5] != Py_None) read_truncated(args[5]);
    gamma_ = static_cast<T>(as_fraction(args[6], "gamma"));
    lam_ = static_cast<T>(as_fraction(args[7], "lam"));
  }

  const ArrayArg<T>& rewards() const { return rewards_; }

  Rollout<T> rollout() const {
    return {.rewards = rewards_.data(),
            .values = values_.data(),
            .next_values = next_values_ ? next_values_->data() : nullptr,
            .bootstrap = bootstrap_ ? bootstrap_->data() : nullptr,
            .dones = nullptr,
            .terminated = terminated_.data(),
            .truncated = truncated_ ? truncated_->data() : nullptr,
            .n_steps = static_cast<std::size_t>(rewards_.dim(0)),
            .n_envs = n_envs(),
            .gamma = gamma_,
            .lam = lam_};
  }

  PairOut<T> outputs(PyObject* out, PyArrayObject* other = nullptr) const {
    return PairOut<T>(
        out, rewards_.ndim(), rewards_.shape(),
        {rewards_.array(), values_.array(), terminated_.array(), other,
         next_values_ ? next_values_->array() : nullptr, bootstrap_ ? bootstrap_->array() : nullptr,
         truncated_ ? truncated_->array() : nullptr});
  }

 private:
  std::size_t n_envs() const {
    return static_cast<std::size_t>(
        PyArray_MultiplyList(rewards_.shape() + 1, rewards_.ndim() - 1));
  }

  void check_bootstrap() const {
    const int ndim = rewards_.ndim() - 1;
    const bool same = bootstrap_->ndim() == ndim &&
                      PyArray_CompareLists(bootstrap_->shape(), rewards_.shape() + 1, ndim);
    const bool one = ndim == 0 && bootstrap_->size() == 1;
    if (!same && !one) {
      throw std::invalid_argument("bootstrap must have shape " +
                                  shape_text(ndim, rewards_.shape() + 1) +
                                  ", one value per environment, got " +
                                  shape_text(bootstrap_->ndim(), bootstrap_->shape()));
    }
  }

  void read_truncated(PyObject* object) {
    truncated_.emplace(object, "truncated");
    check_same_shape(truncated_->array(), "truncated", rewards_.array(), "rewards");
    if (!bootstrap_) return;
    const std::uint8_t* end = truncated_->data() + truncated_->size();
    if (std::any_of(truncated_->data(), end, [](std::uint8_t flag) { return flag != 0; })) {
      throw std::invalid_argument(
          "truncated needs next_values: after a truncated step values holds the first state of the "
          "next "
          "episode, so the value of the true final observation must be given in next_values");
    }
    truncated_.reset();
  }

  ArrayArg<T> rewards_, values_;
  FlagArg terminated_;
  std::optional<ArrayArg<T>> next_values_, bootstrap_;
  std::optional<FlagArg> truncated_;
  T gamma_, lam_;
};

template <typename T>
PyObject* gae_rollout(PyObject* const* args) {
  const RolloutArgs<T> rollout(args);
  PairOut<T> out = rollout.outputs(args[8]);
  {
    const MaybeReleaseGil release(0.5 * static_cast<double>(rollout.rewards().size()));
    returns_kernels<T>().gae(rollout.rollout(), out.first(), out.second());
  }
  return out.finish(rollout.rewards().torch());
}

PyObject* gae(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("gae", nargs, 9);
    return all_float32({args[0], args[1]}) ? gae_rollout<float>(args) : gae_rollout<double>(args);
  });
}

// A bar that importance weights are cut at; inf for none.
template <typename T>
T as_bar(PyObject* object, const char* name) {
  const T bar = as_number<T>(object, name);
  if (!(bar >= 0)) {
    throw std::invalid_argument(std::string(name) + " must not be negative, got " +
                                number_text(bar));
  }
  return bar;
}

template <typename T>
PyObject* vtrace_rollout(PyObject* const* args) {
  const ArrayArg<T> log_rhos(args[0], "log_rhos");
  const RolloutArgs<T> rollout(args + 1);
  check_same_shape(log_rhos.array(), "log_rhos", rollout.rewards().array(), "rewards");
  VtraceWeights<T> weights{.log_rhos = log_rhos.data(),
                           .rho_bar = as_bar<T>(args[9], "rho_bar"),
                           .c_bar = as_bar<T>(args[10], "c_bar"),
                           .pg_rho_bar = 0};
  weights.pg_rho_bar = args[11] == Py_None ? weights.rho_bar : as_bar<T>(args[11], "pg_rho_bar");
  PairOut<T> out = rollout.outputs(args[12], log_rhos.array());
  {
    const MaybeReleaseGil release(2.0 * static_cast<double>(log_rhos.size()));
    returns_kernels<T>().vtrace(rollout.rollout(), weights, out.first(), out.second());
  }
  return out.finish(rollout.rewards().torch());
}

PyObject* vtrace(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("vtrace", nargs, 13);
    return all_float32({args[0], args[1], args[2]}) ? vtrace_rollout<float>(args)
                                                    : vtrace_rollout<double>(args);
  });
}

PyObject* compute_vtrace(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("compute_vtrace", nargs, 8);
    const ArrayArg<float> log_rhos(args[0], "log_rhos");
    const ArrayArg<float> rewards(args[1], "rewards");
    const ArrayArg<float> values(args[2], "values");
    const DonesArg<float> dones(args[3]);
    const float bootstrap = as_number<float>(args[4], "bootstrap_value");
    const double gamma = as_fraction(args[5], "gamma");
    const float rho_bar = as_bar<float>(args[6], "rho_bar");
    const float c_bar = as_bar<float>(args[7], "c_bar");
    check_trajectory(rewards, "rewards");
    check_same_shape(log_rhos.array(), "log_rhos", rewards.array(), "rewards");
    check_same_shape(values.array(), "values", rewards.array(), "rewards");
    check_same_shape(dones.array(), "dones", rewards.array(), "rewards");
    PairOut<float> out(Py_None, 1, rewards.shape(), {});
    {
      const MaybeReleaseGil release(2.0 * static_cast<double>(rewards.size()));
      returns_kernels<float>().vtrace(
          {.rewards = rewards.data(),
           .values = values.data(),
           .next_values = nullptr,
           .bootstrap = &bootstrap,
           .dones = dones.numbers(),
           .terminated = dones.flags(),
           .truncated = nullptr,
           .n_steps = rewards.size(),
           .n_envs = 1,
           .gamma = static_cast<float>(gamma),
           .lam = 1.0f},
          {.log_rhos = log_rhos.data(), .rho_bar = rho_bar, .c_bar = c_bar, .pg_rho_bar = rho_bar},
          out.first(), out.second());
    }
    return out.finish(rewards.torch());
  });
}

template <typename T>
PyObject* n_step(PyObject* const* args) {
  const ArrayArg<T> rewards(args[0], "rewards");
  const ArrayArg<T> next_values(args[1], "next_values");
  const FlagArg terminated(args[2], "terminated");
  const FlagArg truncated(args[3], "truncated");
  const std::size_t n = as_size(args[4], "n");
  const double gamma = as_fraction(args[5], "gamma");
  if (rewards.ndim() < 1)
    throw std::invalid_argument("rewards must have shape [T, N] or [T], got ()");
  if (n == 0) throw std::invalid_argument("n must be at least 1, got 0");
  check_same_shape(next_values.array(), "next_values", rewards.array(), "rewards");
  check_same_shape(terminated.array(), "terminated", rewards.array(), "rewards");
  check_same_shape(truncated.array(), "truncated", rewards.array(), "rewards");
  ArrayOut<T> returns(nullptr, "out", rewards.ndim(), rewards.shape());
  if (rewards.size() > 0) {
    const auto n_steps = static_cast<std::size_t>(rewards.dim(0));
    const double work =
        static_cast<double>(rewards.size()) * static_cast<double>(std::min(n, n_steps));
    const MaybeReleaseGil release(0.5 * work);
    returns_kernels<T>().n_step_returns({.rewards = rewards.data(),
                                         .next_values = next_values.data(),
                                         .terminated = terminated.data(),
                                         .truncated = truncated.data(),
                                         .n_steps = n_steps,
                                         .n_envs = rewards.size() / n_steps,
                                         .n = n,
                                         .gamma = static_cast<T>(gamma)},
                                        returns.data());
  }
  return returns.finish(rewards.torch());
}

PyObject* n_step_returns(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("n_step_returns", nargs, 6);
    return all_float32({args[0], args[1]}) ? n_step<float>(args) : n_step<double>(args);
  });
}

template <typename T>
PyObject* discounted(PyObject* const* args) {
  const ArrayArg<T> rewards(args[0], "rewards");
  const DonesArg<T> dones(args[1]);
  const double gamma = as_fraction(args[2], "gamma");
  const ArrayArg<T> given(args[3], "bootstrap");
  if (rewards.ndim() < 1)
    throw std::invalid_argument("rewards must have shape [T, N] or [T], got ()");
  check_same_shape(dones.array(), "dones", rewards.array(), "rewards");
  const auto n_envs =
      static_cast<std::size_t>(PyArray_MultiplyList(rewards.shape() + 1, rewards.ndim() - 1));
  if (given.size() != 1 &&
      !(given.ndim() == rewards.ndim() - 1 &&
        PyArray_CompareLists(given.shape(), rewards.shape() + 1, given.ndim()))) {
    throw std::invalid_argument("bootstrap must be a number or have shape " +
                                shape_text(rewards.ndim() - 1, rewards.shape() + 1) + ", got " +
                                shape_text(given.ndim(), given.shape()));
  }
  std::vector<T> bootstrap(n_envs, given.size() == 1 ? given.data()[0] : T(0));
  if (given.size() == n_envs) std::copy_n(given.data(), n_envs, bootstrap.begin());
  const std::unique_ptr<T[]> scratch(new T[rewards.size()]);
  ArrayOut<T> returns(nullptr, "out", rewards.ndim(), rewards.shape());
  {
    const MaybeReleaseGil release(0.5 * static_cast<double>(rewards.size()));
    returns_kernels<T>().discounted_returns({.rewards = rewards.data(),
                                             .values = nullptr,
                                             .next_values = nullptr,
                                             .bootstrap = bootstrap.data(),
                                             .dones = dones.numbers(),
                                             .terminated = dones.flags(),
                                             .truncated = nullptr,
                                             .n_steps = static_cast<std::size_t>(rewards.dim(0)),
                                             .n_envs = n_envs,
                                             .gamma = static_cast<T>(gamma),
                                             .lam = 1},
                                            scratch.get(), returns.data());
  }
  return returns.finish(rewards.torch());
}

PyObject* discounted_returns(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("discounted_returns", nargs, 4);
    return all_float32({args[0]}) ? discounted<float>(args) : discounted<double>(args);
  });
}

PyMethodDef functions[] = {
    fast_function("compute_gae", compute_gae),
    fast_function("compute_gae_batched", gae_batched<double>),
    fast_function("compute_gae_batched_f32", gae_batched<float>),
    fast_function("gae", gae),
    fast_function("compute_vtrace", compute_vtrace),
    fast_function("vtrace", vtrace),
    fast_function("n_step_returns", n_step_returns),
    fast_function("discounted_returns", discounted_returns),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void bind_returns(PyObject* module) { add_functions(module, functions); }

}  // namespace sharpwave::bind
