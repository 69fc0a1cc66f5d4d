// collect_rollout: a rollout in one call. Called by src/sharpwave/collect/native.py, which
// documents it.
#include <cstdint>
#include <stdexcept>
#include <string>

#include "bind/arrays.hpp"
#include "bind/bindings.hpp"
#include "bind/native_objects.hpp"
#include "collect/rollout_collector.hpp"

namespace sharpwave::bind {
namespace {

// Memory of Python's that a rollout is written to, held while this lives.
class Column {
 public:
  Column(PyObject* given, const char* name, std::initializer_list<std::size_t> dims, int type) {
    npy_intp shape[3];
    int ndim = 0;
    for (const std::size_t dim : dims) shape[ndim++] = static_cast<npy_intp>(dim);
    array_ = checked_output(given, name, ndim, shape, type);
  }

  template <typename T>
  T* data() const {
    return static_cast<T*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array_.get())));
  }

 private:
  Ref array_;
};

// An item of a tuple of so many.
PyObject* item(PyObject* tuple, const char* name, Py_ssize_t size, Py_ssize_t i) {
  if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != size) {
    throw TypeError(std::string(name) + " must be a tuple of " + std::to_string(size) + " arrays");
  }
  return PyTuple_GET_ITEM(tuple, i);
}

void check_fit(const VectorEnv& env, const Policy& policy, const ActionSpec& actions) {
  using Kind = ActionSpec::Kind;
  if (env.autoreset() != Autoreset::same_step) {
    throw std::invalid_argument("env must have the autoreset mode same_step");
  }
  const std::size_t n_actions = env.spec().n_actions;  // 0 for a continuous one
  const bool fits = n_actions > 0 ? actions.kind == Kind::choices && actions.options.size() == 1 &&
                                        actions.options[0] == n_actions
                                  : actions.kind == Kind::normals && actions.options[0] == 1;
  if (!fits || policy.n_inputs() != env.spec().obs_size) {
    throw std::invalid_argument(
        "learner must have the observations and actions of the environments");
  }
}

// collect_rollout(learner, env, seed, first_call, low, high, (obs, actions, log_probs, values,
// rewards, terminated, truncated, starts, next_values), (obs, starts, returns, lengths)): steps
// taken, returns and lengths of the episodes that ended
PyObject* collect_rollout(PyObject*, PyObject* const* args, Py_ssize_t n_args) {
  return guard([&]() -> PyObject* {
    check_nargs("collect_rollout", n_args, 8);
    const VectorEnv& env = vector_env_of(args[1]);
    check_fit(env, policy_of(args[0]), actions_of(args[0]));
    const RolloutDraws draws = {PyLong_AsUnsignedLongLong(args[2]),
                                PyLong_AsUnsignedLongLong(args[3])};
    const ActionBounds bounds = {static_cast<float>(PyFloat_AsDouble(args[4])),
                                 static_cast<float>(PyFloat_AsDouble(args[5]))};
    if (PyErr_Occurred() != nullptr) throw PythonError();

    PyObject* first = item(args[6], "columns", 9, 2);
    if (!PyArray_Check(first) || PyArray_NDIM(reinterpret_cast<PyArrayObject*>(first)) != 2) {
      throw TypeError("log_probs must be an array [T, N]");
    }
    const auto n_steps =
        static_cast<std::size_t>(PyArray_DIM(reinterpret_cast<PyArrayObject*>(first), 0));
    const std::size_t n = env.size(), obs_size = env.spec().obs_size;
    const auto column = [&](Py_ssize_t i, const char* name, int type) {
      return Column(item(args[6], "columns", 9, i), name, {n_steps, n}, type);
    };
    const Column obs(item(args[6], "columns", 9, 0), "obs", {n_steps, n, obs_size}, NPY_FLOAT32);
    const bool is_discrete = env.spec().n_actions > 0;
    const Column actions = is_discrete ? column(1, "actions", NPY_INT64)
                                       : Column(item(args[6], "columns", 9, 1), "actions",
                                                {n_steps, n, 1}, NPY_FLOAT32);
    const Column log_probs = column(2, "log_probs", NPY_FLOAT32),
                 values = column(3, "values", NPY_FLOAT32),
                 rewards = column(4, "rewards", NPY_FLOAT32),
                 terminated = column(5, "terminated", NPY_BOOL),
                 truncated = column(6, "truncated", NPY_BOOL),
                 starts = column(7, "starts", NPY_BOOL),
                 next_values = column(8, "next_values", NPY_FLOAT32);
    const Column now(item(args[7], "place", 4, 0), "obs", {n, obs_size}, NPY_FLOAT32),
        is_first(item(args[7], "place", 4, 1), "starts", {n}, NPY_BOOL),
        returns(item(args[7], "place", 4, 2), "returns", {n}, NPY_FLOAT64),
        lengths(item(args[7], "place", 4, 3), "lengths", {n}, NPY_INT64);

    const RolloutColumns columns = {.obs = obs.data<float>(),
                                    .choices = is_discrete ? actions.data<std::int64_t>() : nullptr,
                                    .moves = is_discrete ? nullptr : actions.data<float>(),
                                    .log_probs = log_probs.data<float>(),
                                    .values = values.data<float>(),
                                    .rewards = rewards.data<float>(),
                                    .terminated = terminated.data<std::uint8_t>(),
                                    .truncated = truncated.data<std::uint8_t>(),
                                    .starts = starts.data<std::uint8_t>(),
                                    .next_values = next_values.data<float>()};
    const RolloutPlace place = {.obs = now.data<float>(),
                                .starts = is_first.data<std::uint8_t>(),
                                .returns = returns.data<double>(),
                                .lengths = lengths.data<std::int64_t>()};
    FinishedEpisodes finished;
    std::size_t taken = 0;
    bool is_ready = true;
    {
      const ReleaseGil release;
      use_vector_env(args[1], [&](VectorEnv* envs) {
        is_ready = envs->is_ready();
        if (!is_ready) return;
        use_policy(args[0], [&](PolicyActor* actor, const float* parameters) {
          taken = RolloutCollector(envs, actor, bounds)
                      .collect(parameters, draws, n_steps, columns, place, &finished);
        });
      });
    }
    if (!is_ready) throw std::runtime_error("the environments must be reset first");

    const auto n_finished = static_cast<npy_intp>(finished.returns.size());
    ArrayOut<double> all_returns(nullptr, "out", 1, &n_finished);
    ArrayOut<std::int64_t> all_lengths(nullptr, "out", 1, &n_finished);
    std::copy(finished.returns.begin(), finished.returns.end(), all_returns.data());
    std::copy(finished.lengths.begin(), finished.lengths.end(), all_lengths.data());
    const Ref second = Ref::take(all_returns.finish()), third = Ref::take(all_lengths.finish());
    return Py_BuildValue("nOO", static_cast<Py_ssize_t>(taken), second.get(), third.get());
  });
}

PyMethodDef functions[] = {
    fast_function("collect_rollout", collect_rollout),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void bind_collect(PyObject* module) { add_functions(module, functions); }

}  // namespace sharpwave::bind
