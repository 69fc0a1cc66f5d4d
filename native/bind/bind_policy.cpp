// PolicyLearner: updates of PPO and A2C on memory that Python owns. Called by
// src/sharpwave/learners/native/policy.py, which documents it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bind/bindings.hpp"
#include "bind/policy_arguments.hpp"
#include "core/learn/a2c.hpp"
#include "core/learn/policy_actor.hpp"
#include "core/learn/ppo.hpp"
#include "core/learn/shuffle.hpp"
#include "core/learn/statistics.hpp"

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

// Writable float32 memory of Python's, held while this lives.
class Floats {
 public:
  Floats(nb::handle given, const char* name, int ndim, std::size_t n) {
    const auto shape = static_cast<npy_intp>(n);
    array_ = checked_output(given.ptr(), name, ndim, &shape, NPY_FLOAT32);
  }
  float* data() const {
    return static_cast<float*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array_.get())));
  }

 private:
  Ref array_;
};

// The state of a ValueNorm, [3] float64 of Python's, or None.
class NormMemory {
 public:
  NormMemory(nb::handle given, double decay) : decay_(decay) {
    if (given.is_none()) return;
    const npy_intp shape = 3;
    array_ = checked_output(given.ptr(), "value_norm", 1, &shape, NPY_FLOAT64);
  }
  bool is_given() const { return static_cast<bool>(array_); }
  ValueNorm norm() const {
    if (!is_given()) return {nullptr, decay_};
    void* data = PyArray_DATA(reinterpret_cast<PyArrayObject*>(array_.get()));
    return {static_cast<ValueNorm::State*>(data), decay_};
  }

 private:
  Ref array_;
  double decay_;
};

class PolicyLearner {
 public:
  PolicyLearner(std::size_t n_inputs, std::size_t n_critic_inputs,
                const std::vector<std::size_t>& hidden,
                const std::vector<std::size_t>& critic_hidden, Activation activation,
                ActionSpec actions, bool has_joint, nb::handle parameters, nb::handle gradient)
      : actions_(std::move(actions)),
        has_joint_(has_joint),
        policy_(n_inputs, n_critic_inputs, hidden, critic_hidden, activation, actions_.make_head()),
        parameters_(parameters, "parameters", 1, policy_.n_parameters()),
        gradient_memory_(gradient, "gradient", 1, policy_.n_parameters()),
        gradient_(policy_, parameters_.data(), gradient_memory_.data()),
        actor_(policy_) {}
  PolicyLearner(const PolicyLearner&) = delete;
  PolicyLearner& operator=(const PolicyLearner&) = delete;

  const Policy& policy() const { return policy_; }
  const ActionSpec& actions() const { return actions_; }
  // Whether the critic looks at something else than the actor.
  bool has_joint() const { return has_joint_; }

  // Calls body(gradient) without the GIL, one caller at a time.
  template <typename Body>
  void learn(Body&& body) {
    const ReleaseGil release;
    const std::lock_guard lock(mutex_);
    body(&gradient_);
  }

  // Calls body(actor, parameters) for n rows; without the GIL where that takes long, and never
  // waiting with it.
  template <typename Body>
  void act(std::size_t n, Body&& body) {
    constexpr std::size_t kMuch = 500'000;  // parameters times rows in 20 us or so
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock && n * policy_.n_parameters() < kMuch) return body(&actor_, parameters_.data());
    const ReleaseGil release;
    if (!lock) lock.lock();
    body(&actor_, parameters_.data());
  }

 private:
  ActionSpec actions_;
  bool has_joint_;
  Policy policy_;
  Floats parameters_, gradient_memory_;
  PolicyGradient gradient_;
  PolicyActor actor_;
  std::mutex mutex_;
};

ActionSpec actions_of(const std::string& kind, const std::vector<std::size_t>& options) {
  using Kind = ActionSpec::Kind;
  if (kind == "choices") return {Kind::choices, options};
  if (options.size() != 1) throw std::invalid_argument("options must hold one number of " + kind);
  if (kind == "bits") return {Kind::bits, options};
  if (kind == "normals") return {Kind::normals, options};
  throw std::invalid_argument("actions must be 'choices', 'bits' or 'normals', got '" + kind + "'");
}

void check_sizes(const char* name, const std::vector<std::size_t>& sizes) {
  constexpr std::size_t kMost = 1 << 24;  // integers that float32 can hold
  for (const std::size_t size : sizes) {
    if (size < 1 || size > kMost) {
      throw std::invalid_argument(std::string(name) + " must hold sizes from 1 to 2**24, got " +
                                  std::to_string(size));
    }
  }
}

void construct(PolicyLearner* memory, std::size_t n_inputs, const std::vector<std::size_t>& hidden,
               const std::vector<std::size_t>& critic_hidden, const std::string& activation,
               const std::string& actions, const std::vector<std::size_t>& options,
               nb::handle parameters, nb::handle gradient,
               std::optional<std::size_t> n_critic_inputs) {
  const nb::object made = returned([&] {
    check_sizes("n_inputs", {n_inputs});
    check_sizes("n_critic_inputs", {n_critic_inputs.value_or(n_inputs)});
    check_sizes("hidden", hidden);
    check_sizes("critic_hidden", critic_hidden);
    check_sizes("options", options);
    if (options.empty()) throw std::invalid_argument("options must not be empty");
    new (memory) PolicyLearner(n_inputs, n_critic_inputs.value_or(n_inputs), hidden, critic_hidden,
                               activation_of(activation), actions_of(actions, options),
                               n_critic_inputs.has_value(), parameters, gradient);
    Py_RETURN_NONE;
  });
}

// The columns of a batch, a tuple in the order of RolloutArgs.
RolloutArgs rollout_of(const PolicyLearner& self, nb::handle batch) {
  if (!PyTuple_Check(batch.ptr()) ||
      PyTuple_GET_SIZE(batch.ptr()) != static_cast<Py_ssize_t>(RolloutArgs::kCount)) {
    throw TypeError("batch must be a tuple of " + std::to_string(RolloutArgs::kCount) + " columns");
  }
  std::array<PyObject*, RolloutArgs::kCount> columns;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    columns[i] = PyTuple_GET_ITEM(batch.ptr(), static_cast<Py_ssize_t>(i));
  }
  return RolloutArgs(columns.data(), self.policy(), self.actions());
}

void need(const float* column, const char* name) {
  if (column == nullptr) {
    throw std::invalid_argument(std::string(name) + " must be given for this loss");
  }
}

void check_loss(const PolicyRollout& rollout, const PolicyLoss& loss) {
  need(rollout.advantages, "advantages");
  need(rollout.returns, "returns");
  if (loss.is_clipped) need(rollout.log_probs, "log_probs");
  if (loss.value_clip) need(rollout.values, "values");
}

// [n] numbers.
PyObject* numbers(std::initializer_list<double> values) {
  const auto n = static_cast<npy_intp>(values.size());
  ArrayOut<double> out(nullptr, "out", 1, &n);
  std::copy(values.begin(), values.end(), out.data());
  return out.finish();
}

PyObject* numbers_of(const PolicyMetrics& m, const PolicyRollout& rollout) {
  const double explained =
      rollout.values == nullptr
          ? std::numeric_limits<double>::quiet_NaN()
          : explained_variance(rollout.values, rollout.returns, rollout.weights, rollout.n_rows);
  return numbers({m.policy_loss, m.value_loss, m.entropy, m.approx_kl, m.clip_fraction, m.loss,
                  m.grad_norm, explained});
}

nb::object gradient(PolicyLearner& self, nb::handle batch, nb::handle rows,
                    std::optional<float> clip, std::optional<float> value_clip, bool normalize,
                    float vf_coef, float ent_coef, std::size_t threads) {
  return returned([&] {
    const RolloutArgs args = rollout_of(self, batch);
    const PolicyLoss loss = {clip.has_value(), clip.value_or(0.0f), value_clip, normalize, vf_coef,
                             ent_coef};
    check_loss(args.rollout(), loss);
    const IndexArg indices(rows.ptr(), "rows");
    if (indices.size() == 0) throw std::invalid_argument("rows must not be empty");
    check_rows(indices, "rows", args.rollout().n_rows);
    PolicyMetrics metrics;
    self.learn([&](PolicyGradient* learner) {
      Team::lead(threads, [&](Team& team) {
        metrics = learner->compute(args.rollout(), indices.data(), indices.size(), loss, team);
      });
    });
    return numbers({metrics.policy_loss, metrics.value_loss, metrics.entropy, metrics.approx_kl,
                    metrics.clip_fraction, metrics.loss});
  });
}

nb::object evaluate(PolicyLearner& self, nb::handle batch) {
  return returned([&] {
    const RolloutArgs args = rollout_of(self, batch);
    const auto n = static_cast<npy_intp>(args.rollout().n_rows);
    ArrayOut<float> log_probs(nullptr, "out", 1, &n), entropies(nullptr, "out", 1, &n),
        values(nullptr, "out", 1, &n);
    self.learn([&](PolicyGradient* learner) {
      learner->evaluate(args.rollout(), log_probs.data(), entropies.data(), values.data());
    });
    const Ref first = Ref::take(log_probs.finish()), second = Ref::take(entropies.finish()),
              third = Ref::take(values.finish());
    return PyTuple_Pack(3, first.get(), second.get(), third.get());
  });
}

nb::object act(PolicyLearner& self, nb::handle obs, nb::handle masks,
               std::optional<std::pair<std::uint64_t, std::uint64_t>> draw) {
  return returned([&] {
    const ObsArg rows(obs.ptr(), "obs", self.policy().n_inputs());
    const MaskArg allowed(masks.ptr(), rows.size(), self.policy(), self.actions());
    const npy_intp shape[] = {static_cast<npy_intp>(rows.size()),
                              static_cast<npy_intp>(self.policy().head().n_actions())};
    const bool moves = self.actions().kind == ActionSpec::Kind::normals;
    std::optional<ArrayOut<std::int64_t>> choices;
    std::optional<ArrayOut<float>> floats;
    if (moves) {
      floats.emplace(nullptr, "out", 2, shape);
    } else {
      choices.emplace(nullptr, "out", 2, shape);
    }
    ArrayOut<float> log_probs(nullptr, "out", 1, shape);
    std::optional<ArrayOut<float>> values;
    if (!self.has_joint()) values.emplace(nullptr, "out", 1, shape);
    const Acted acted = {.choices = moves ? nullptr : choices->data(),
                         .moves = moves ? floats->data() : nullptr,
                         .log_probs = log_probs.data(),
                         .values = values ? values->data() : nullptr};
    std::optional<Draws> draws;
    if (draw) draws.emplace(Draws{Philox(draw->first, draw->second)});
    self.act(rows.size(), [&](PolicyActor* actor, const float* parameters) {
      actor->act(parameters, rows.data(), rows.size(), allowed.data(), draws, acted);
    });
    const Ref first = Ref::take(moves ? floats->finish() : choices->finish()),
              second = Ref::take(log_probs.finish()),
              third = values ? Ref::take(values->finish()) : Ref::borrow(Py_None);
    return PyTuple_Pack(3, first.get(), second.get(), third.get());
  });
}

nb::object values(PolicyLearner& self, nb::handle obs) {
  return returned([&] {
    const ObsArg rows(obs.ptr(), self.has_joint() ? "joint" : "obs",
                      self.policy().n_critic_inputs());
    const auto n = static_cast<npy_intp>(rows.size());
    ArrayOut<float> out(nullptr, "out", 1, &n);
    self.act(rows.size(), [&](PolicyActor* actor, const float* parameters) {
      actor->values(parameters, rows.data(), rows.size(), out.data());
    });
    return out.finish();
  });
}

nb::object shuffled(std::uint64_t seed, std::uint64_t call, std::size_t n_orders, std::size_t n) {
  return returned([&] {
    const npy_intp shape[] = {static_cast<npy_intp>(n_orders), static_cast<npy_intp>(n)};
    ArrayOut<std::int64_t> orders(nullptr, "out", 2, shape);
    shuffle(Philox(seed, call), n_orders, n, orders.data());
    return orders.finish();
  });
}

nb::object ppo_update(PolicyLearner& self, nb::handle batch, nb::handle orders,
                      std::size_t batch_size, float clip, std::optional<float> value_clip,
                      bool normalize, float vf_coef, float ent_coef, double max_grad_norm,
                      std::optional<double> target_kl, nb::handle exp_avg, nb::handle exp_avg_sq,
                      nb::handle steps, double lr, double beta1, double beta2, double eps,
                      std::size_t threads, std::optional<float> huber_delta, nb::handle value_norm,
                      double decay, std::optional<double> desired_kl,
                      std::pair<float, float> rate_bounds, nb::handle rate) {
  return returned([&] {
    const RolloutArgs args = rollout_of(self, batch);
    const PolicyRollout& rollout = args.rollout();
    PpoOptions options = {{true, clip, value_clip, normalize, vf_coef, ent_coef},
                          batch_size,
                          max_grad_norm,
                          target_kl,
                          threads};
    if (huber_delta) options.loss.huber_delta = *huber_delta;
    const NormMemory norm_memory(value_norm, decay);
    ValueNorm norm = norm_memory.norm();
    if (norm_memory.is_given()) options.loss.value_norm = &norm;
    check_loss(rollout, options.loss);
    if (batch_size == 0) throw std::invalid_argument("batch_size must be positive, got 0");
    const IndexArg order(orders.ptr(), "orders");
    if (order.ndim() != 2 || static_cast<std::size_t>(order.shape()[1]) != rollout.n_rows ||
        order.shape()[0] == 0) {
      throw std::invalid_argument("orders must have shape (n_epochs, " +
                                  std::to_string(rollout.n_rows) + "), got " +
                                  shape_text(order.ndim(), order.shape()));
    }
    check_rows(order, "orders", rollout.n_rows);
    const std::size_t n_parameters = self.policy().n_parameters();
    const Floats mean(exp_avg, "exp_avg", 1, n_parameters);
    const Floats square(exp_avg_sq, "exp_avg_sq", 1, n_parameters);
    const Floats count(steps, "steps", 0, 1);
    Adam adam({mean.data(), square.data(), count.data()}, lr, beta1, beta2, eps);
    std::optional<Floats> rate_memory;
    if (desired_kl) {
      rate_memory.emplace(rate, "rate", 0, 1);
      options.adaptive_rate = {*desired_kl, rate_bounds.first, rate_bounds.second,
                               rate_memory->data()};
    }
    PpoResult result;
    self.learn([&](PolicyGradient* learner) {
      result = sharpwave::ppo_update(learner, rollout, order.data(),
                                     static_cast<std::size_t>(order.shape()[0]), options, &adam);
    });
    return numbers_of(result.means, rollout);
  });
}

nb::object a2c_update(PolicyLearner& self, nb::handle batch, bool normalize, float vf_coef,
                      float ent_coef, double max_grad_norm, nb::handle square_avg, double lr,
                      double alpha, double eps, std::size_t threads) {
  return returned([&] {
    const RolloutArgs args = rollout_of(self, batch);
    const A2cOptions options = {
        {false, 0.0f, std::nullopt, normalize, vf_coef, ent_coef}, max_grad_norm, threads};
    check_loss(args.rollout(), options.loss);
    const Floats square(square_avg, "square_avg", 1, self.policy().n_parameters());
    Rmsprop rmsprop(square.data(), lr, alpha, eps);
    PolicyMetrics metrics;
    self.learn([&](PolicyGradient* learner) {
      metrics = sharpwave::a2c_update(learner, args.rollout(), options, &rmsprop);
    });
    return numbers_of(metrics, args.rollout());
  });
}

}  // namespace

void bind_policy(PyObject* module) {
  nb::module_ m = nb::borrow<nb::module_>(module);
  m.def("shuffled", shuffled, "seed"_a, "call"_a, "n_orders"_a, "n"_a,
        nb::sig("def shuffled(seed: int, call: int, n_orders: int, n: int) -> "
                "NDArray[numpy.int64]"),
        "Permutations [n_orders, n] of 0 to n - 1, a function of the arguments.");
  nb::class_<PolicyLearner>(
      m, "PolicyLearner",
      "Updates of a policy whose parameters and gradient are given arrays. A "
      "batch is (obs, actions, advantages, returns, log_probs, values, masks, "
      "weights, joint, joint_rows), None for what is missing.")
      .def("__init__", construct, "n_inputs"_a, "hidden"_a, "critic_hidden"_a, "activation"_a,
           "actions"_a, "options"_a, "parameters"_a, "gradient"_a, "n_critic_inputs"_a = nb::none(),
           nb::sig("def __init__(self, n_inputs: int, hidden: Sequence[int], "
                   "critic_hidden: Sequence[int], activation: str, actions: str, options: "
                   "Sequence[int], parameters: Any, gradient: Any, "
                   "n_critic_inputs: int | None = None) -> None"))
      .def("gradient", gradient, "batch"_a, "rows"_a, "clip"_a.none(), "value_clip"_a.none(),
           "normalize"_a, "vf_coef"_a, "ent_coef"_a, "threads"_a,
           nb::sig("def gradient(self, batch: tuple[Any, ...], rows: Any, clip: float | None, "
                   "value_clip: float | None, normalize: bool, vf_coef: float, ent_coef: float, "
                   "threads: int) -> NDArray[numpy.float64]"),
           "Overwrites the gradient with that of the loss on some rows; the metrics but for the "
           "norm. Without a clip range it is A2C's loss.")
      .def("evaluate", evaluate, "batch"_a,
           nb::sig("def evaluate(self, batch: tuple[Any, ...]) -> tuple[NDArray[numpy.float32], "
                   "NDArray[numpy.float32], NDArray[numpy.float32]]"),
           "Log-probabilities, entropies and values.")
      .def("act", act, "obs"_a, "masks"_a.none(), "draw"_a.none(),
           nb::sig("def act(self, obs: Any, masks: Any, draw: tuple[int, int] | None) -> "
                   "tuple[NDArray[Any], NDArray[numpy.float32], NDArray[numpy.float32] | None]"),
           "Actions [n, k], log-probabilities and, where the critic has the same inputs, values; "
           "draw is the seed of a generator and the "
           "number of the call, None for the most likely actions.")
      .def("values", values, "obs"_a,
           nb::sig("def values(self, obs: Any) -> NDArray[numpy.float32]"), "Values [n].")
      .def(
          "ppo_update", ppo_update, "batch"_a, "orders"_a, "batch_size"_a, "clip"_a,
          "value_clip"_a.none(), "normalize"_a, "vf_coef"_a, "ent_coef"_a, "max_grad_norm"_a,
          "target_kl"_a.none(), "exp_avg"_a, "exp_avg_sq"_a, "steps"_a, "lr"_a, "beta1"_a,
          "beta2"_a, "eps"_a, "threads"_a, "huber_delta"_a = nb::none(),
          "value_norm"_a = nb::none(), "decay"_a = 0.0, "desired_kl"_a = nb::none(),
          "rate_bounds"_a = std::pair(0.0f, 0.0f), "rate"_a = nb::none(),
          nb::sig("def ppo_update(self, batch: tuple[Any, ...], orders: Any, batch_size: int, "
                  "clip: float, value_clip: float | None, normalize: bool, vf_coef: float, "
                  "ent_coef: float, max_grad_norm: float, target_kl: float | None, exp_avg: Any, "
                  "exp_avg_sq: Any, steps: Any, lr: float, beta1: float, beta2: float, eps: float, "
                  "threads: int, huber_delta: float | None = None, value_norm: Any = None, "
                  "decay: float = 0.0, desired_kl: float | None = None, "
                  "rate_bounds: tuple[float, float] = (0.0, 0.0), rate: Any = None) -> "
                  "NDArray[numpy.float64]"),
          "Metrics, the norm and the explained variance. `value_norm` is [3] mean, mean square and "
          "weight of a ValueNorm, which changes. With `desired_kl` so does `rate`, [] the learning "
          "rate, within bounds.")
      .def("a2c_update", a2c_update, "batch"_a, "normalize"_a, "vf_coef"_a, "ent_coef"_a,
           "max_grad_norm"_a, "square_avg"_a, "lr"_a, "alpha"_a, "eps"_a, "threads"_a,
           nb::sig("def a2c_update(self, batch: tuple[Any, ...], normalize: bool, vf_coef: float, "
                   "ent_coef: float, max_grad_norm: float, square_avg: Any, lr: float, "
                   "alpha: float, eps: float, threads: int) -> NDArray[numpy.float64]"),
           "Metrics, the norm and the explained variance.");
}

}  // namespace sharpwave::bind
