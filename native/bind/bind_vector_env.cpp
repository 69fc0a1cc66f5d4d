// VectorEnv: the type under sharpwave.envs.NativeVectorEnv and NativeMultiAgentEnv. A step of a few
// environments takes less time than the call of a Python function, so `step` is a raw method.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <vector>

#include "bind/action_arguments.hpp"
#include "bind/bindings.hpp"
#include "bind/primitive_args.hpp"
#include "bind/vector_env.hpp"
#include "core/isa/kernels.hpp"
#include "envs/vector_env.hpp"

namespace nb = nanobind;

namespace sharpwave::bind {
namespace {

struct EnvObject {
  PyObject_HEAD Envs* envs;
};

[[noreturn]] void raise_gymnasium(const char* type, const char* message) {
  const Ref module = Ref::take(PyImport_ImportModule("gymnasium.error"));
  const Ref kind = Ref::take(PyObject_GetAttrString(module.get(), type));
  PyErr_SetString(kind.get(), message);
  throw PythonError();
}

Envs* opened(PyObject* self) {
  Envs* envs = reinterpret_cast<EnvObject*>(self)->envs;
  if (envs == nullptr) throw std::runtime_error("the vector environment was not initialized");
  if (envs->is_closed) {
    raise_gymnasium("ClosedEnvironmentError", "the vector environment is closed");
  }
  return envs;
}

// A fresh array of this length, with `columns` columns unless that is 0.
class Fresh {
 public:
  Fresh(std::size_t n, std::size_t columns, int type) {
    npy_intp shape[] = {static_cast<npy_intp>(n), static_cast<npy_intp>(columns)};
    array_ = Ref::take(PyArray_SimpleNew(columns == 0 ? 1 : 2, shape, type));
  }

  template <typename T>
  T* data() const {
    return static_cast<T*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array_.get())));
  }
  PyObject* get() const { return array_.get(); }
  PyObject* release() { return array_.release(); }

 private:
  Ref array_;
};

void set_item(PyObject* dict, const char* key, PyObject* value) {
  if (PyDict_SetItemString(dict, key, value) != 0) throw PythonError();
}

struct Keys {
  PyObject* final_obs = PyUnicode_InternFromString("final_obs");
  PyObject* has_final_obs = PyUnicode_InternFromString("_final_obs");
  PyObject* final_info = PyUnicode_InternFromString("final_info");
  PyObject* has_final_info = PyUnicode_InternFromString("_final_info");
};
const Keys& keys() {
  static const Keys interned;
  return interned;
}

// Gymnasium's infos of a step that ended episodes: an array of N last observations or None.
void add_final_obs(PyObject* infos, const Envs& envs, const StepOut& out) {
  const std::size_t n = envs.env.size();
  const Fresh final_obs(n, 0, NPY_OBJECT), mask(n, 0, NPY_BOOL);
  auto** rows = final_obs.data<PyObject*>();  // null until they are set, which NumPy reads as None
  auto* ended = mask.data<std::uint8_t>();
  npy_intp size = static_cast<npy_intp>(envs.env.spec().obs_size);
  for (std::size_t i = 0; i < n; ++i) {
    ended[i] = out.terminated[i] | out.truncated[i];
    if (ended[i] == 0) {
      rows[i] = Py_NewRef(Py_None);
      continue;
    }
    rows[i] = Ref::take(PyArray_SimpleNew(1, &size, NPY_FLOAT32)).release();
    const float* row = out.final_obs + i * static_cast<std::size_t>(size);
    std::copy_n(row, size,
                static_cast<float*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(rows[i]))));
  }
  const Ref final_info = Ref::take(PyDict_New());
  const Keys& known = keys();
  if (PyDict_SetItem(infos, known.final_obs, final_obs.get()) != 0 ||
      PyDict_SetItem(infos, known.has_final_obs, mask.get()) != 0 ||
      PyDict_SetItem(infos, known.final_info, final_info.get()) != 0 ||
      PyDict_SetItem(infos, known.has_final_info, mask.get()) != 0) {
    throw PythonError();
  }
}

bool any_set(const std::uint8_t* flags, std::size_t n) {
  return std::memchr(flags, 1, n) != nullptr;
}

// The argument `actions`, by position or name.
PyObject* only_argument(PyObject* const* args, Py_ssize_t n_args, PyObject* keywords) {
  const Py_ssize_t n_keywords = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
  if (n_args + n_keywords != 1 ||
      (n_keywords == 1 &&
       PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(keywords, 0), "actions") != 0)) {
    throw TypeError("step() takes one argument, actions");
  }
  return args[0];
}

void check_ready(const VectorEnv& env) {
  if (!env.is_ready()) {
    raise_gymnasium("ResetNeeded", "the environments must be reset before the first step");
  }
  if (env.waiting() > 0) {
    raise_gymnasium("ResetNeeded", "environments whose episode ended must be reset first");
  }
}

PyObject* step(PyObject* self, PyObject* const* args, Py_ssize_t n_args, PyObject* keywords) {
  return guard([&]() -> PyObject* {
    Envs* envs = opened(self);
    VectorEnv& env = envs->env;
    const ActionArgs actions(only_argument(args, n_args, keywords), *envs);
    const std::size_t n = env.size();
    Fresh obs(n, env.spec().obs_size, NPY_FLOAT32), rewards(n, 0, NPY_FLOAT64);
    Fresh terminated(n, 0, NPY_BOOL), truncated(n, 0, NPY_BOOL);
    Ref infos = Ref::take(PyDict_New());
    const bool same_step = env.autoreset() == Autoreset::same_step;
    const StepOut out = {obs.data<float>(), rewards.data<double>(), terminated.data<std::uint8_t>(),
                         truncated.data<std::uint8_t>(),
                         same_step ? envs->final_obs.data() : nullptr};
    {
      const EnvLock lock(envs);
      check_ready(env);
      {
        const MaybeReleaseGil release(env.step_ns());
        env.step(actions.data(), out);
      }
      if (same_step && (any_set(out.terminated, n) || any_set(out.truncated, n))) {
        add_final_obs(infos.get(), *envs, out);
      }
    }
    PyObject* result = PyTuple_New(5);
    if (result == nullptr) throw PythonError();
    PyTuple_SET_ITEM(result, 0, obs.release());
    PyTuple_SET_ITEM(result, 1, rewards.release());
    PyTuple_SET_ITEM(result, 2, terminated.release());
    PyTuple_SET_ITEM(result, 3, truncated.release());
    PyTuple_SET_ITEM(result, 4, infos.release());
    return result;
  });
}

// The observations that a step led to: `obs`, or a copy of it with the last ones of episodes.
Ref led_to(PyObject* obs, const Envs& envs, const StepOut& out) {
  const std::size_t n = envs.env.size(), row = envs.env.spec().obs_row();
  if (!any_set(out.terminated, n) && !any_set(out.truncated, n)) return Ref::borrow(obs);
  Ref copy = Ref::take(PyArray_NewCopy(reinterpret_cast<PyArrayObject*>(obs), NPY_CORDER));
  auto* to = static_cast<float*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(copy.get())));
  for (std::size_t i = 0; i < n; ++i) {
    if ((out.terminated[i] | out.truncated[i]) == 0) continue;
    std::copy_n(out.final_obs + i * row, row, to + i * row);
  }
  return copy;
}

// _step_agents(actions): obs and next_obs [n, n_agents, obs_size], which are the same object where
// no episode ended, rewards [n, n_agents], terminated [n], truncated [n].
PyObject* step_agents(PyObject* self, PyObject* const* args, Py_ssize_t n_args) {
  return guard([&]() -> PyObject* {
    check_nargs("_step_agents", n_args, 1);
    Envs* envs = opened(self);
    VectorEnv& env = envs->env;
    const ActionArgs actions(args[0], *envs);
    const std::size_t n = env.size();
    npy_intp shape[] = {static_cast<npy_intp>(n), static_cast<npy_intp>(env.spec().n_agents),
                        static_cast<npy_intp>(env.spec().obs_size)};
    const Ref obs = Ref::take(PyArray_SimpleNew(3, shape, NPY_FLOAT32));
    Fresh rewards(n, env.spec().n_agents, NPY_FLOAT64);
    Fresh terminated(n, 0, NPY_BOOL), truncated(n, 0, NPY_BOOL);
    const StepOut out = {
        static_cast<float*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(obs.get()))),
        rewards.data<double>(), terminated.data<std::uint8_t>(), truncated.data<std::uint8_t>(),
        envs->final_obs.data()};
    Ref next_obs;
    {
      const EnvLock lock(envs);
      check_ready(env);
      {
        const MaybeReleaseGil release(env.step_ns());
        env.step(actions.data(), out);
      }
      next_obs = led_to(obs.get(), *envs, out);
    }
    return PyTuple_Pack(5, obs.get(), next_obs.get(), rewards.get(), terminated.get(),
                        truncated.get());
  });
}

// Contiguous memory of one type and size, of an array that Python made.
template <typename T>
const T* memory_of(PyObject* object, const char* name, int type, std::size_t size) {
  auto* array = reinterpret_cast<PyArrayObject*>(object);
  if (!PyArray_Check(object) || PyArray_TYPE(array) != type || !PyArray_ISCARRAY_RO(array) ||
      static_cast<std::size_t>(PyArray_SIZE(array)) != size) {
    const Ref descr = Ref::take(reinterpret_cast<PyObject*>(PyArray_DescrFromType(type)));
    const Ref text = Ref::take(PyObject_Str(descr.get()));
    throw std::invalid_argument(std::string(name) + " must be a contiguous array of " +
                                std::to_string(size) + " " + PyUnicode_AsUTF8(text.get()));
  }
  return static_cast<const T*>(PyArray_DATA(array));
}

// _reset(mask | None, seeds | None, is_seeded, low, high): all observations. Arrays of length N,
// but the bounds, which have the variables of a state.
PyObject* reset(PyObject* self, PyObject* const* args, Py_ssize_t n_args) {
  return guard([&]() -> PyObject* {
    check_nargs("_reset", n_args, 5);
    Envs* envs = opened(self);
    VectorEnv& env = envs->env;
    const std::size_t n = env.size(), variables = env.spec().variables;
    const auto* mask =
        args[0] == Py_None ? nullptr : memory_of<std::uint8_t>(args[0], "reset_mask", NPY_BOOL, n);
    const auto* seeds =
        args[1] == Py_None ? nullptr : memory_of<std::uint64_t>(args[1], "seeds", NPY_UINT64, n);
    const auto* is_seeded =
        args[1] == Py_None ? nullptr : memory_of<std::uint8_t>(args[2], "is_seeded", NPY_BOOL, n);
    const StartBounds bounds = {memory_of<double>(args[3], "low", NPY_FLOAT64, variables),
                                memory_of<double>(args[4], "high", NPY_FLOAT64, variables)};
    Fresh obs(n, env.spec().obs_row(), NPY_FLOAT32);
    const EnvLock lock(envs);
    if (mask != nullptr && !env.is_ready() && std::memchr(mask, 0, n) != nullptr) {
      raise_gymnasium("ResetNeeded", "the first reset must be one of all environments");
    }
    for (std::size_t i = 0; seeds != nullptr && i < n; ++i) {
      if (is_seeded[i] != 0) env.seed(i, seeds[i]);
    }
    const MaybeReleaseGil release(10.0 * static_cast<double>(n) + env.step_ns());
    env.reset(mask, bounds, obs.data<float>());
    return obs.release();
  });
}

// _save(): the whole state, as arrays
PyObject* save(PyObject* self, PyObject*) {
  return guard([&]() -> PyObject* {
    Envs* envs = opened(self);
    const std::size_t n = envs->env.size();
    npy_intp shape[] = {static_cast<npy_intp>(envs->env.spec().variables),
                        static_cast<npy_intp>(n)};
    const Ref variables = Ref::take(PyArray_SimpleNew(2, shape, NPY_FLOAT64));
    const Fresh returns(n * envs->env.spec().n_agents, 0, NPY_FLOAT64);
    const Fresh steps(n, 0, NPY_INT64), ended(n, 0, NPY_BOOL);
    const Fresh seeds(n, 0, NPY_UINT64), resets(n, 0, NPY_UINT64);
    bool is_ready = false;
    {
      const EnvLock lock(envs);
      is_ready = envs->env.is_ready();
      envs->env.save(
          {static_cast<double*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(variables.get()))),
           steps.data<std::int64_t>(), returns.data<double>(), seeds.data<std::uint64_t>(),
           resets.data<std::uint64_t>(), ended.data<std::uint8_t>()});
    }
    Ref state = Ref::take(PyDict_New());
    set_item(state.get(), "variables", variables.get());
    set_item(state.get(), "steps", steps.get());
    set_item(state.get(), "returns", returns.get());
    set_item(state.get(), "seeds", seeds.get());
    set_item(state.get(), "resets", resets.get());
    set_item(state.get(), "ended", ended.get());
    set_item(state.get(), "is_ready", is_ready ? Py_True : Py_False);
    return state.release();
  });
}

// _restore(variables, steps, returns, seeds, resets, ended)
PyObject* restore(PyObject* self, PyObject* const* args, Py_ssize_t n_args) {
  return guard([&]() -> PyObject* {
    check_nargs("_restore", n_args, 6);
    Envs* envs = opened(self);
    const std::size_t n = envs->env.size(), variables = envs->env.spec().variables;
    const GivenVectorEnv state = {
        memory_of<double>(args[0], "variables", NPY_FLOAT64, variables * n),
        memory_of<std::int64_t>(args[1], "steps", NPY_INT64, n),
        memory_of<double>(args[2], "returns", NPY_FLOAT64, n * envs->env.spec().n_agents),
        memory_of<std::uint64_t>(args[3], "seeds", NPY_UINT64, n),
        memory_of<std::uint64_t>(args[4], "resets", NPY_UINT64, n),
        memory_of<std::uint8_t>(args[5], "ended", NPY_BOOL, n)};
    const EnvLock lock(envs);
    envs->env.restore(state);
    Py_RETURN_NONE;
  });
}

// _close(): nothing but another _close() works from then on
PyObject* close(PyObject* self, PyObject*) {
  auto* object = reinterpret_cast<EnvObject*>(self);
  if (object->envs != nullptr) object->envs->is_closed = true;
  Py_RETURN_NONE;
}

Autoreset as_autoreset(const std::string& mode) {
  if (mode == "same_step") return Autoreset::same_step;
  if (mode == "next_step") return Autoreset::next_step;
  if (mode == "disabled") return Autoreset::disabled;
  throw std::invalid_argument("autoreset_mode must be next_step, same_step or disabled, got '" +
                              mode + "'");
}

// VectorEnv(env_id, num_envs, max_episode_steps, option, autoreset_mode, threads, n_agents=0),
// where 0 stands for an environment without an axis of agents.
int init_env(PyObject* self, PyObject* args, PyObject*) {
  const char* id = nullptr;
  const char* mode = nullptr;
  Py_ssize_t n = 0, threads = 0, n_agents = 0;
  long long time_limit = 0;
  double option = 0;
  if (!PyArg_ParseTuple(args, "snLdsn|n", &id, &n, &time_limit, &option, &mode, &threads,
                        &n_agents)) {
    return -1;
  }
  PyObject* done = guard([&]() -> PyObject* {
    auto* object = reinterpret_cast<EnvObject*>(self);
    if (object->envs != nullptr) throw std::runtime_error("the environments are made already");
    if (n < 1) {
      throw std::invalid_argument("num_envs must be at least 1, got " + std::to_string(n));
    }
    if (threads < 0) {
      throw std::invalid_argument("threads must not be negative, got " + std::to_string(threads));
    }
    const bool is_multi = n_agents != 0;
    const EnvKernels& found = is_multi
                                  ? VectorEnv::find_multi(id, static_cast<std::size_t>(n_agents))
                                  : VectorEnv::find(id);
    object->envs = new Envs(
        found, static_cast<std::size_t>(n),
        {time_limit, option, as_autoreset(mode), static_cast<std::size_t>(threads)}, is_multi);
    return Py_NewRef(Py_None);
  });
  Py_XDECREF(done);
  return done == nullptr ? -1 : 0;
}

PyObject* new_env(PyTypeObject* type, PyObject*, PyObject*) { return type->tp_alloc(type, 0); }

void free_env(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<EnvObject*>(self)->envs;
  type->tp_free(self);
  Py_DECREF(type);
}

Ref as_tuple(const double* values, std::size_t n) {
  Ref tuple = Ref::take(PyTuple_New(static_cast<Py_ssize_t>(n)));
  for (std::size_t i = 0; i < n; ++i) {
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), PyFloat_FromDouble(values[i]));
  }
  return tuple;
}

Ref spec_dict(const EnvSpec& spec) {
  const Ref low = as_tuple(spec.start_low, spec.variables);
  const Ref high = as_tuple(spec.start_high, spec.variables);
  return Ref::take(Py_BuildValue("{s:L,s:s,s:d,s:O,s:O,s:n,s:n}", "time_limit",
                                 static_cast<long long>(spec.time_limit), "option", spec.option,
                                 "option_default", spec.option_default, "low", low.get(), "high",
                                 high.get(), "obs_size", static_cast<Py_ssize_t>(spec.obs_size),
                                 "n_agents", static_cast<Py_ssize_t>(spec.n_agents)));
}

// environment_specs(): by id, what the environments of one agent are
PyObject* environment_specs(PyObject*, PyObject* const*, Py_ssize_t n_args) {
  return guard([&]() -> PyObject* {
    check_nargs("environment_specs", n_args, 0);
    Ref specs = Ref::take(PyDict_New());
    for (const EnvKernels& env : kernels().env.envs) {
      set_item(specs.get(), env.spec.id, spec_dict(env.spec).get());
    }
    return specs.release();
  });
}

// multi_environment_spec(env_id, n_agents): what an environment of so many agents is
PyObject* multi_environment_spec(PyObject*, PyObject* const* args, Py_ssize_t n_args) {
  return guard([&]() -> PyObject* {
    check_nargs("multi_environment_spec", n_args, 2);
    const std::size_t n_agents = as_size(args[1], "n_agents");
    return spec_dict(VectorEnv::find_multi(as_utf8(args[0]), n_agents).spec).release();
  });
}

constexpr const char* kStepDoc = R"doc(Step all environments.

Args:
    actions: [N] integers, or [N, 1] finite numbers, which are clipped to the action space.

Returns:
    Observations [N, ...] float32, rewards [N] float64, terminated [N], truncated [N], and infos.

Raises:
    ValueError: The shape does not fit, or an action is out of range, NaN or inf. Nothing changed.
    TypeError: The actions are no numbers, or should be integers.
)doc";

template <typename Function>
PyCFunction as_method(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}

PyMethodDef methods[] = {
    {"step", as_method(step), METH_FASTCALL | METH_KEYWORDS, kStepDoc},
    {"_step_agents", as_method(step_agents), METH_FASTCALL, nullptr},
    {"_reset", as_method(reset), METH_FASTCALL, nullptr},
    {"_save", as_method(save), METH_NOARGS, nullptr},
    {"_restore", as_method(restore), METH_FASTCALL, nullptr},
    {"_close", as_method(close), METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(new_env)},
    {Py_tp_init, reinterpret_cast<void*>(init_env)},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_env)},
    {Py_tp_methods, methods},
    {0, nullptr},
};
PyType_Spec type_spec = {"sharpwave._native.VectorEnv", sizeof(EnvObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

PyMethodDef functions[] = {
    fast_function("environment_specs", environment_specs),
    fast_function("multi_environment_spec", multi_environment_spec),
    {nullptr, nullptr, 0, nullptr},
};

PyTypeObject* env_type = nullptr;  // the module keeps it alive

}  // namespace

Envs* envs_of(PyObject* vector_env) {
  if (!PyObject_TypeCheck(vector_env, env_type)) {
    throw TypeError("env must be a NativeVectorEnv, got " +
                    std::string(Py_TYPE(vector_env)->tp_name));
  }
  return opened(vector_env);
}

void bind_vector_env(PyObject* module) {
  add_functions(module, functions);
  PyObject* type = PyType_FromSpec(&type_spec);
  if (type == nullptr || PyModule_AddObject(module, "VectorEnv", type) != 0) {
    throw nb::python_error();
  }
  env_type = reinterpret_cast<PyTypeObject*>(type);
}

}  // namespace sharpwave::bind
