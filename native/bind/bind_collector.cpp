// Collector: rollouts of native environments, collected by native threads. Called by
// src/sharpwave/collect/native.py, which documents it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bind/arrays.hpp"
#include "bind/bindings.hpp"
#include "bind/vector_env.hpp"
#include "core/collect/collector.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace sharpwave::bind {
namespace {

// Runs `body` and lets its exceptions, Python's among them, pass through nanobind.
template <typename Body>
nb::object returned(Body&& body) {
  PyObject* result = guard(std::forward<Body>(body));
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}

std::unique_ptr<Head> head_for(const EnvSpec& spec) {
  if (spec.n_actions == 0) return make_normals(spec.action_size);
  return make_choices({static_cast<std::size_t>(spec.n_actions)});
}

// [n] finite float32 numbers.
std::vector<float> weights_of(nb::handle given, std::size_t n) {
  const ArrayArg<float> weights(given.ptr(), "weights");
  if (weights.ndim() != 1 || weights.size() != n) {
    throw std::invalid_argument("weights must have shape (" + std::to_string(n) + ",), got " +
                                shape_text(weights.ndim(), weights.shape()));
  }
  for (std::size_t i = 0; i < n; ++i) {
    if (!std::isfinite(weights.data()[i])) {
      throw NotFiniteError("weights must be finite, got " +
                           number_text(static_cast<double>(weights.data()[i])) + " at " +
                           std::to_string(i));
    }
  }
  return std::vector<float>(weights.data(), weights.data() + n);
}

CriticView critic_view_of(const std::string& name) {
  if (name == "obs") return CriticView::own;
  if (name == "joint") return CriticView::joint;
  if (name == "own_first") return CriticView::own_first;
  throw std::invalid_argument("critic must be 'obs', 'joint' or 'own_first', got '" + name + "'");
}

// What a policy looks at where `options` say so.
Policy policy_of(const EnvSpec& spec, const RolloutOptions& options,
                 const std::vector<std::size_t>& hidden,
                 const std::vector<std::size_t>& critic_hidden, Activation activation) {
  const PolicyView view = view_of(spec, options);
  return Policy(view.n_inputs(), view.n_critic_inputs(), hidden, critic_hidden, activation,
                head_for(spec));
}

class NativeCollector {
 public:
  NativeCollector(nb::handle env, const std::vector<std::size_t>& hidden,
                  const std::vector<std::size_t>& critic_hidden, Activation activation,
                  nb::handle weights, const RolloutOptions& options, std::size_t capacity)
      : env_(nb::borrow(env)),
        envs_(envs_of(env.ptr())),
        policy_(policy_of(envs_->env.spec(), options, hidden, critic_hidden, activation)) {
    std::vector<float> first = weights_of(weights, policy_.n_parameters());
    std::unique_ptr<Rollouts> rollouts;
    {
      const EnvLock lock(envs_);
      rollouts = std::make_unique<Rollouts>(&envs_->env, &policy_, options);
    }
    collector_ =
        std::make_unique<Collector>(std::move(rollouts), &envs_->mutex, std::move(first), capacity);
  }
  NativeCollector(const NativeCollector&) = delete;
  NativeCollector& operator=(const NativeCollector&) = delete;

  const Policy& policy() const { return policy_; }
  Collector& collector() { return *collector_; }

 private:
  nb::object env_;
  Envs* envs_;
  Policy policy_;
  std::unique_ptr<Collector> collector_;
};

void construct(NativeCollector* memory, nb::handle env, const std::vector<std::size_t>& hidden,
               const std::vector<std::size_t>& critic_hidden, const std::string& activation,
               nb::handle weights, std::size_t n_steps, float gamma, float gae_lambda,
               std::uint64_t seed, std::size_t capacity, std::size_t threads, bool is_valued,
               bool has_agent_id, const std::string& critic, bool is_team_paid) {
  const nb::object made = returned([&] {
    new (memory) NativeCollector(env, hidden, critic_hidden, activation_of(activation), weights,
                                 {n_steps, gamma, gae_lambda, seed, threads, is_valued,
                                  has_agent_id, critic_view_of(critic), is_team_paid},
                                 capacity);
    Py_RETURN_NONE;
  });
}

// Arrays over the memory of a rollout, which lives as long as one of them.
class RolloutArrays {
 public:
  explicit RolloutArrays(std::unique_ptr<CollectedRollout> rollout)
      : rollout_(*rollout),
        owner_(Ref::take(PyCapsule_New(rollout.get(), nullptr, destroy))),
        dict_(Ref::take(PyDict_New())) {
    rollout.release();
  }

  Ref finish() {
    CollectedRollout& r = rollout_;
    const auto t = static_cast<npy_intp>(r.shape.n_steps),
               n = static_cast<npy_intp>(r.shape.n_rows());
    const auto obs_size = static_cast<npy_intp>(r.shape.obs_size);
    add("obs", NPY_FLOAT32, r.obs.data(), {t, n, obs_size});
    if (r.shape.is_discrete) {
      add("actions", NPY_INT64, r.choices.data(), {t, n});
    } else {
      const auto action_size = static_cast<npy_intp>(r.shape.action_size);
      add("actions", NPY_FLOAT32, r.moves.data(), {t, n, action_size});
    }
    add("log_probs", NPY_FLOAT32, r.log_probs.data(), {t, n});
    add("rewards", NPY_FLOAT32, r.rewards.data(), {t, n});
    add("terminated", NPY_BOOL, r.terminated.data(), {t, n});
    add("truncated", NPY_BOOL, r.truncated.data(), {t, n});
    add("starts", NPY_BOOL, r.starts.data(), {t, n});
    if (r.shape.is_valued) {
      add("values", NPY_FLOAT32, r.values.data(), {t, n});
      add("next_values", NPY_FLOAT32, r.next_values.data(), {t, n});
      add("advantages", NPY_FLOAT32, r.advantages.data(), {t, n});
      add("returns", NPY_FLOAT32, r.returns.data(), {t, n});
    }
    const auto episodes = static_cast<npy_intp>(r.episode_lengths.size()),
               lives = static_cast<npy_intp>(r.episode_returns.size());
    add("episode_returns", NPY_FLOAT64, r.episode_returns.data(), {lives});
    add("episode_lengths", NPY_INT64, r.episode_lengths.data(), {episodes});
    add("final_obs", NPY_FLOAT32, r.final_obs.data(), {lives, obs_size});
    add("last_obs", NPY_FLOAT32, r.last_obs.data(), {n, obs_size});
    set("version", Ref::take(PyLong_FromUnsignedLongLong(r.version)));
    return std::move(dict_);
  }

 private:
  static void destroy(PyObject* capsule) {
    delete static_cast<CollectedRollout*>(PyCapsule_GetPointer(capsule, nullptr));
  }

  void add(const char* name, int type, void* data, std::vector<npy_intp> shape) {
    const int ndim = static_cast<int>(shape.size());
    if (data == nullptr) return set(name, Ref::take(PyArray_SimpleNew(ndim, shape.data(), type)));
    Ref array = Ref::take(PyArray_SimpleNewFromData(ndim, shape.data(), type, data));
    PyObject* base = Py_NewRef(owner_.get());
    if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array.get()), base) != 0) {
      throw PythonError();
    }
    set(name, std::move(array));
  }
  void set(const char* name, Ref value) {
    if (PyDict_SetItemString(dict_.get(), name, value.get()) != 0) throw PythonError();
  }

  CollectedRollout& rollout_;
  Ref owner_, dict_;
};

PyObject* as_dict(std::unique_ptr<CollectedRollout> rollout) {
  if (rollout == nullptr) Py_RETURN_NONE;
  return RolloutArrays(std::move(rollout)).finish().release();
}

nb::object receive(NativeCollector& self) {
  return returned([&]() -> PyObject* {
    for (;;) {
      std::unique_ptr<CollectedRollout> rollout;
      {
        const ReleaseGil release;
        rollout = self.collector().receive(std::chrono::milliseconds(100));
      }
      if (rollout != nullptr) return as_dict(std::move(rollout));
      if (PyErr_CheckSignals() != 0) throw PythonError();
    }
  });
}

nb::object try_receive(NativeCollector& self) {
  return returned([&] { return as_dict(self.collector().try_receive()); });
}

nb::object set_weights(NativeCollector& self, nb::handle weights, float value_mean,
                       float value_deviation) {
  return returned([&] {
    std::vector<float> given = weights_of(weights, self.policy().n_parameters());
    const ValueScale scale = {value_mean, value_deviation};
    return PyLong_FromUnsignedLongLong(self.collector().set_weights(std::move(given), scale));
  });
}

nb::object weights(NativeCollector& self) {
  return returned([&] {
    const std::shared_ptr<const Weights> weights = self.collector().weights();
    const auto n = static_cast<npy_intp>(weights->parameters.size());
    ArrayOut<float> out(nullptr, "out", 1, &n);
    std::copy(weights->parameters.begin(), weights->parameters.end(), out.data());
    return out.finish();
  });
}

// Calls body() without the GIL.
template <typename Body>
nb::object without_gil(Body&& body) {
  return returned([&] {
    {
      const ReleaseGil release;
      body();
    }
    Py_RETURN_NONE;
  });
}

}  // namespace

void bind_collector(PyObject* module) {
  nb::module_ m = nb::borrow<nb::module_>(module);
  nb::class_<NativeCollector>(m, "Collector", "Rollouts of a policy in a VectorEnv.")
      .def("__init__", construct, "env"_a, "hidden"_a, "critic_hidden"_a, "activation"_a,
           "weights"_a, "n_steps"_a, "gamma"_a, "gae_lambda"_a, "seed"_a, "capacity"_a, "threads"_a,
           "is_valued"_a = true, "has_agent_id"_a = false, "critic"_a = "obs",
           "is_team_paid"_a = false,
           nb::sig("def __init__(self, env: VectorEnv, hidden: Sequence[int], "
                   "critic_hidden: Sequence[int], activation: str, weights: Any, n_steps: int, "
                   "gamma: float, gae_lambda: float, seed: int, "
                   "capacity: int, threads: int, is_valued: bool = True, "
                   "has_agent_id: bool = False, critic: str = 'obs', "
                   "is_team_paid: bool = False) -> None"))
      .def("recv", receive, nb::sig("def recv(self) -> dict[str, Any]"))
      .def("try_recv", try_receive, nb::sig("def try_recv(self) -> dict[str, Any] | None"))
      .def("request", [](NativeCollector& self) { self.collector().request(); })
      .def("set_weights", set_weights, "weights"_a, "value_mean"_a = 0.0f,
           "value_deviation"_a = 1.0f,
           nb::sig("def set_weights(self, weights: Any, value_mean: float = 0.0, "
                   "value_deviation: float = 1.0) -> int"))
      .def("weights", weights, nb::sig("def weights(self) -> NDArray[numpy.float32]"))
      .def(
          "stop",
          [](NativeCollector& self) { return without_gil([&] { self.collector().stop(); }); },
          nb::sig("def stop(self) -> None"))
      .def_prop_ro("is_stopped",
                   [](NativeCollector& self) { return self.collector().is_stopped(); })
      .def_prop_ro("version",
                   [](NativeCollector& self) { return self.collector().weights()->version; })
      .def_prop_rw(
          "count", [](NativeCollector& self) { return self.collector().count(); },
          [](NativeCollector& self, std::uint64_t count) { self.collector().set_count(count); })
      .def("__len__", [](NativeCollector& self) { return self.collector().size(); });
}

}  // namespace sharpwave::bind
