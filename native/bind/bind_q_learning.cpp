// QLearner: steps of Q-learning on memory that Python owns. Called by
// src/sharpwave/learners/native/dqn.py, which documents it.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/bindings.hpp"
#include "bind/index_arg.hpp"
#include "bind/learner_memory.hpp"
#include "bind/primitive_args.hpp"
#include "core/learn/q_actor.hpp"
#include "core/learn/q_learning.hpp"

using namespace nanobind::literals;

namespace sharpwave::bind {
namespace {

// A network with its target network, and what learns on them.
struct QCore {
  QCore(QNetwork given, PyObject* online_memory, PyObject* target_memory)
      : network(std::move(given)),
        online(online_memory, "online", network.n_parameters()),
        target(target_memory, "target", network.n_parameters()),
        learning(network, online.data(), target.data(), online.grad()) {}

  QNetwork network;
  OptimizedMemory online;
  FloatMemory target;
  QLearning learning;
};

using QLearner = Exclusive<QCore>;

// The columns of a batch: (obs, actions, rewards, next_obs, discounts, weights, next_allowed).
class QArguments {
 public:
  QArguments(PyObject* batch, const QNetwork& network)
      : columns_(checked(batch)),
        replay_(at(0), at(2), at(3), at(4), at(5), network.n_inputs()),
        actions_(at(1), "actions"),
        rows_{replay_.rows()} {
    take_actions(network);
    if (at(6) != Py_None) take_allowed(network);
  }

  const QRows& rows() const { return rows_; }

 private:
  static PyObject* checked(PyObject* batch) {
    if (!PyTuple_Check(batch) || PyTuple_GET_SIZE(batch) != 7) {
      throw TypeError(
          "batch must be (obs, actions, rewards, next_obs, discounts, weights, next_allowed)");
    }
    return batch;
  }
  PyObject* at(Py_ssize_t i) const { return PyTuple_GET_ITEM(columns_, i); }

  void take_actions(const QNetwork& network) {
    const std::vector<std::size_t>& choices = network.choices();
    const auto n = static_cast<npy_intp>(rows_.n), k = static_cast<npy_intp>(choices.size());
    const npy_intp* shape = actions_.shape();
    const bool is_flat = actions_.ndim() == 1 && k == 1 && shape[0] == n;
    if (!is_flat && !(actions_.ndim() == 2 && shape[0] == n && shape[1] == k)) {
      const npy_intp wanted[] = {n, k};
      throw std::invalid_argument("actions must have shape " + shape_text(k == 1 ? 1 : 2, wanted) +
                                  ", got " + shape_text(actions_.ndim(), shape));
    }
    for (std::size_t i = 0; i < actions_.size(); ++i) {
      const std::size_t options = choices[i % choices.size()];
      if (static_cast<std::uint64_t>(actions_.data()[i]) >= options) {
        throw std::invalid_argument("actions must be in [0, " + std::to_string(options) +
                                    "), got " + std::to_string(actions_.data()[i]) + " in row " +
                                    std::to_string(i / choices.size()));
      }
    }
    rows_.actions = actions_.data();
  }

  void take_allowed(const QNetwork& network) {
    allowed_.emplace(at(6), "next_allowed");
    check_shape("next_allowed", allowed_->array(), {rows_.n, network.n_options()});
    rows_.next_allowed = allowed_->data();
  }

  PyObject* columns_;
  ReplayArguments replay_;
  IndexArg actions_;
  std::optional<FlagArg> allowed_;
  QRows rows_;
};

QNetwork network_of(std::size_t n_inputs, const std::vector<std::size_t>& hidden,
                    const std::string& activation, const std::vector<std::size_t>& choices,
                    bool dueling) {
  check_sizes("n_inputs", {n_inputs});
  check_sizes("hidden", hidden);
  check_sizes("choices", choices);
  if (choices.empty()) throw std::invalid_argument("choices must not be empty");
  return {n_inputs, hidden, activation_of(activation), choices, dueling};
}

void construct(QLearner* memory, std::size_t n_inputs, const std::vector<std::size_t>& hidden,
               const std::string& activation, const std::vector<std::size_t>& choices, bool dueling,
               nb::handle online, nb::handle target) {
  passing_errors([&] {
    new (memory) QLearner(network_of(n_inputs, hidden, activation, choices, dueling), online.ptr(),
                          target.ptr());
    Py_RETURN_NONE;
  });
}

nb::object gradient(QLearner& self, nb::handle batch, bool is_double, bool is_huber,
                    std::size_t threads) {
  return passing_errors([&] {
    const QArguments args(batch.ptr(), self.core().network);
    const QOptions options = {is_double, is_huber, 0.0, 1.0f};
    const auto n = static_cast<npy_intp>(args.rows().n);
    ArrayOut<float> errors(nullptr, "out", 1, &n);
    QMetrics m;
    self.use([&](QCore* core) {
      Team::lead(threads, [&](Team& team) {
        m = core->learning.compute(args.rows(), options, errors.data(), team);
      });
    });
    return with_errors({m.loss, m.q_value, m.td_error}, &errors);
  });
}

nb::object step(QLearner& self, nb::handle batch, bool is_double, bool is_huber,
                double max_grad_norm, float tau, std::size_t threads) {
  return passing_errors([&] {
    const QArguments args(batch.ptr(), self.core().network);
    const QOptions options = {is_double, is_huber, max_grad_norm, tau};
    const auto n = static_cast<npy_intp>(args.rows().n);
    ArrayOut<float> errors(nullptr, "out", 1, &n);
    QMetrics m;
    self.use([&](QCore* core) {
      Adam adam = core->online.adam();
      Team::lead(threads, [&](Team& team) {
        m = core->learning.step(args.rows(), options, &adam, errors.data(), team);
      });
    });
    return with_errors({m.loss, m.q_value, m.td_error, m.grad_norm}, &errors);
  });
}

// A network that acts, on parameters that Python owns.
class Player {
 public:
  Player(QNetwork network, PyObject* parameters)
      : network_(std::move(network)),
        parameters_(parameters, "parameters", network_.n_parameters()),
        actor_(network_) {}
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  PyObject* act(PyObject* given_obs, PyObject* given_allowed,
                const std::optional<Exploration>& exploration) {
    const ObsArgument obs(given_obs, network_.n_inputs());
    const std::size_t n = obs.n();
    std::optional<FlagArg> allowed;
    if (given_allowed != Py_None) {
      allowed.emplace(given_allowed, "allowed");
      check_shape("allowed", allowed->array(), {n, network_.n_options()});
    }
    const npy_intp shape[] = {static_cast<npy_intp>(n),
                              static_cast<npy_intp>(network_.choices().size())};
    ArrayOut<std::int64_t> actions(nullptr, "out", 2, shape);
    {
      const MaybeReleaseGil release(static_cast<double>(n * network_.n_parameters()) / 20.0);
      const std::lock_guard lock(mutex_);
      actor_.act(parameters_.data(), obs.data(), n, allowed ? allowed->data() : nullptr,
                 exploration, actions.data());
    }
    return actions.finish();
  }

 private:
  QNetwork network_;
  FloatMemory parameters_;
  QActor actor_;
  std::mutex mutex_;
};

void construct_player(Player* memory, std::size_t n_inputs, const std::vector<std::size_t>& hidden,
                      const std::string& activation, const std::vector<std::size_t>& choices,
                      bool dueling, nb::handle parameters) {
  passing_errors([&] {
    new (memory)
        Player(network_of(n_inputs, hidden, activation, choices, dueling), parameters.ptr());
    Py_RETURN_NONE;
  });
}

nb::object best(Player& self, nb::handle obs, nb::handle allowed) {
  return passing_errors([&] { return self.act(obs.ptr(), allowed.ptr(), std::nullopt); });
}

nb::object explore(Player& self, nb::handle obs, nb::handle allowed, double epsilon,
                   std::uint64_t seed, std::uint64_t call) {
  return passing_errors(
      [&] { return self.act(obs.ptr(), allowed.ptr(), Exploration{epsilon, Philox(seed, call)}); });
}

}  // namespace

void bind_q_learning(PyObject* module) {
  nb::module_ m = nb::borrow<nb::module_>(module);
  nb::class_<QLearner>(
      m, "QLearner",
      "Steps of Q-learning. `online` is (data, grad, exp_avg, exp_avg_sq, steps, "
      "lr, beta1, beta2, eps), `target` the data of the target network. A batch is "
      "(obs, actions, rewards, next_obs, discounts, weights, next_allowed), of "
      "which the last two may be None.")
      .def("__init__", construct, "n_inputs"_a, "hidden"_a, "activation"_a, "choices"_a,
           "dueling"_a, "online"_a, "target"_a,
           nb::sig("def __init__(self, n_inputs: int, hidden: Sequence[int], activation: str, "
                   "choices: Sequence[int], dueling: bool, online: tuple[Any, ...], target: Any) "
                   "-> None"))
      .def("gradient", gradient, "batch"_a, "double"_a, "huber"_a, "threads"_a,
           nb::sig("def gradient(self, batch: tuple[Any, ...], double: bool, huber: bool, "
                   "threads: int) -> tuple[NDArray[numpy.float64], NDArray[numpy.float32]]"),
           "Overwrites the gradient; the metrics but for its norm, and the errors.")
      .def("step", step, "batch"_a, "double"_a, "huber"_a, "max_grad_norm"_a, "tau"_a, "threads"_a,
           nb::sig("def step(self, batch: tuple[Any, ...], double: bool, huber: bool, "
                   "max_grad_norm: float, tau: float, threads: int) -> "
                   "tuple[NDArray[numpy.float64], NDArray[numpy.float32]]"),
           "One gradient step; the metrics, and the errors.");
  nb::class_<Player>(m, "QActor", "Chooses actions [n, n_choices] by the values of a network.")
      .def("__init__", construct_player, "n_inputs"_a, "hidden"_a, "activation"_a, "choices"_a,
           "dueling"_a, "parameters"_a,
           nb::sig("def __init__(self, n_inputs: int, hidden: Sequence[int], activation: str, "
                   "choices: Sequence[int], dueling: bool, parameters: Any) -> None"))
      .def("best", best, "obs"_a, "allowed"_a.none(),
           nb::sig("def best(self, obs: Any, allowed: Any) -> NDArray[numpy.int64]"),
           "The best actions.")
      .def("explore", explore, "obs"_a, "allowed"_a.none(), "epsilon"_a, "seed"_a, "call"_a,
           nb::sig("def explore(self, obs: Any, allowed: Any, epsilon: float, seed: int, "
                   "call: int) -> NDArray[numpy.int64]"),
           "With chance epsilon random actions; a function of the seed and the number of the "
           "call.");
}

}  // namespace sharpwave::bind
