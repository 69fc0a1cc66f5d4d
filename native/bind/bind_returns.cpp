// GAE and its relatives. Called positionally by src/sharpwave/primitives/returns.py, which
// documents them.
#include "bind/arrays.hpp"
#include "bind/bindings.hpp"
#include "core/isa/kernels.hpp"

namespace sharpwave::bind {
namespace {

template <typename T>
PyObject* gae_one(PyObject* const* args) {
  const ArrayArg<T> rewards(args[0], "rewards");
  const ArrayArg<T> values(args[1], "values");
  const ArrayArg<T> dones(args[2], "dones");
  const double last_value = as_double(args[3], "last_value");
  const double gamma = as_double(args[4], "gamma");
  const double lam = as_double(args[5], "lam");
  check_same_shape(values.array(), "values", rewards.array(), "rewards");
  check_same_shape(dones.array(), "dones", rewards.array(), "rewards");
  ArrayOut<T> advantages(nullptr, "out", rewards.ndim(), rewards.shape());
  ArrayOut<T> returns(nullptr, "out", rewards.ndim(), rewards.shape());
  {
    const MaybeReleaseGil release(2.0 * static_cast<double>(rewards.size()));
    const auto kernel = [] {
      if constexpr (std::is_same_v<T, float>)
        return kernels().returns.gae_one_f32;
      else
        return kernels().returns.gae_one_f64;
    }();
    kernel(rewards.data(), values.data(), dones.data(), static_cast<T>(last_value), rewards.size(),
           static_cast<T>(gamma), static_cast<T>(lam), advantages.data(), returns.data());
  }
  const Ref first(advantages.finish(rewards.torch()));
  const Ref second(returns.finish(rewards.torch()));
  return PyTuple_Pack(2, first.get(), second.get());
}

PyObject* compute_gae(PyObject*, PyObject* const* args, Py_ssize_t) {
  return guard([&] { return gae_one<double>(args); });
}

PyMethodDef functions[] = {
    {"compute_gae", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(compute_gae)),
     METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void bind_returns(PyObject* module) { add_functions(module, functions); }

}  // namespace sharpwave::bind
