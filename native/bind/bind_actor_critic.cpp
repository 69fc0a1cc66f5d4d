// SACLearner, TD3Learner and their actors, on memory that Python owns. Called by
// src/sharpwave/learners/native/actor_critic.py, which documents them.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/bindings.hpp"
#include "bind/learner_memory.hpp"
#include "core/learn/sac.hpp"
#include "core/learn/td3.hpp"

using namespace nanobind::literals;

namespace sharpwave::bind {
namespace {

using Sizes = std::vector<std::size_t>;

// What all networks of an agent have in common.
struct Form {
  Form(std::size_t n_obs, std::size_t n_actions, const Sizes& hidden, const std::string& activation)
      : n_obs(n_obs), n_actions(n_actions), hidden(hidden), activation(activation_of(activation)) {
    check_sizes("n_obs", {n_obs});
    check_sizes("n_actions", {n_actions});
    check_sizes("hidden", hidden);
  }

  SquashedActor squashed() const { return {n_obs, n_actions, hidden, activation}; }
  DeterministicActor deterministic() const { return {n_obs, n_actions, hidden, activation}; }
  Critics critics(std::size_t n, const Sizes& widths) const {
    check_sizes("n_critics", {n});
    check_sizes("critic_hidden", widths);
    return {n, n_obs + n_actions, widths, activation};
  }

  std::size_t n_obs, n_actions;
  const Sizes& hidden;
  Activation activation;
};

// The columns of a batch: (obs, actions, rewards, next_obs, discounts, weights).
class BatchArguments {
 public:
  BatchArguments(PyObject* batch, std::size_t n_obs, std::size_t n_actions)
      : columns_(checked(batch)),
        replay_(at(0), at(2), at(3), at(4), at(5), n_obs),
        actions_(at(1), "actions"),
        rows_{replay_.rows()} {
    check_shape("actions", actions_.array(), {rows_.n, n_actions});
    rows_.actions = actions_.data();
  }

  const ContinuousRows& rows() const { return rows_; }

 private:
  static PyObject* checked(PyObject* batch) {
    if (!PyTuple_Check(batch) || PyTuple_GET_SIZE(batch) != 6) {
      throw TypeError("batch must be (obs, actions, rewards, next_obs, discounts, weights)");
    }
    return batch;
  }
  PyObject* at(Py_ssize_t i) const { return PyTuple_GET_ITEM(columns_, i); }

  PyObject* columns_;
  ReplayArguments replay_;
  ArrayArg<float> actions_;
  ContinuousRows rows_;
};

// Noise as an array of the given shape, or drawn.
class NoiseArgument {
 public:
  NoiseArgument(PyObject* given, std::initializer_list<std::size_t> shape, std::uint64_t seed,
                std::uint64_t call)
      : noise_{nullptr, Philox(seed, call)} {
    if (given == Py_None) return;
    array_.emplace(given, "noise");
    check_shape("noise", array_->array(), shape);
    noise_.given = array_->data();
  }

  const Noise& noise() const { return noise_; }

 private:
  std::optional<ArrayArg<float>> array_;
  Noise noise_;
};

template <typename Actor>
struct Networks {
  Actor actor;
  Critics critics;
};

struct SacCore {
  SacCore(Networks<SquashedActor> networks, PyObject* actor_memory, PyObject* critics_memory,
          PyObject* alpha_memory, PyObject* targets_memory)
      : actor(actor_memory, "actor", networks.actor.n_parameters()),
        critics(critics_memory, "critics", networks.critics.n_parameters()),
        alpha(alpha_memory, "alpha", 1),
        targets(targets_memory, "targets", networks.critics.n_parameters()),
        learning(networks.actor, std::move(networks.critics),
                 {actor.data(), actor.grad(), critics.data(), critics.grad(), alpha.data(),
                  alpha.grad(), targets.data()}) {}

  OptimizedMemory actor, critics, alpha;
  FloatMemory targets;
  SoftActorCritic learning;
};

struct Td3Core {
  Td3Core(Networks<DeterministicActor> networks, PyObject* actor_memory, PyObject* critics_memory,
          PyObject* target_actor_memory, PyObject* target_critics_memory)
      : actor(actor_memory, "actor", networks.actor.n_parameters()),
        critics(critics_memory, "critics", networks.critics.n_parameters()),
        target_actor(target_actor_memory, "target_actor", networks.actor.n_parameters()),
        target_critics(target_critics_memory, "target_critics", networks.critics.n_parameters()),
        learning(networks.actor, std::move(networks.critics),
                 {actor.data(), actor.grad(), critics.data(), critics.grad(), target_actor.data(),
                  target_critics.data()}) {}

  OptimizedMemory actor, critics;
  FloatMemory target_actor, target_critics;
  Td3 learning;
};

using SacLearner = Exclusive<SacCore>;
using Td3Learner = Exclusive<Td3Core>;

void construct_sac(SacLearner* memory, std::size_t n_obs, std::size_t n_actions,
                   const Sizes& hidden, const std::string& activation, std::size_t n_critics,
                   const Sizes& critic_hidden, nb::handle actor, nb::handle critics,
                   nb::handle alpha, nb::handle targets) {
  passing_errors([&] {
    const Form form(n_obs, n_actions, hidden, activation);
    new (memory)
        SacLearner(Networks<SquashedActor>{form.squashed(), form.critics(n_critics, critic_hidden)},
                   actor.ptr(), critics.ptr(), alpha.ptr(), targets.ptr());
    Py_RETURN_NONE;
  });
}

void construct_td3(Td3Learner* memory, std::size_t n_obs, std::size_t n_actions,
                   const Sizes& hidden, const std::string& activation, std::size_t n_critics,
                   const Sizes& critic_hidden, nb::handle actor, nb::handle critics,
                   nb::handle target_actor, nb::handle target_critics) {
  passing_errors([&] {
    const Form form(n_obs, n_actions, hidden, activation);
    new (memory) Td3Learner(
        Networks<DeterministicActor>{form.deterministic(), form.critics(n_critics, critic_hidden)},
        actor.ptr(), critics.ptr(), target_actor.ptr(), target_critics.ptr());
    Py_RETURN_NONE;
  });
}

nb::object sac_step(SacLearner& self, nb::handle batch, nb::handle given_noise, std::uint64_t seed,
                    std::uint64_t call, std::optional<float> fixed_alpha, float target_entropy,
                    double max_grad_norm, float tau, std::size_t threads) {
  return passing_errors([&] {
    const SquashedActor& actor = self.core().learning.actor();
    const BatchArguments args(batch.ptr(), actor.n_obs(), actor.n_actions());
    const std::size_t n = args.rows().n;
    const NoiseArgument noise(given_noise.ptr(), {2, n, actor.n_actions()}, seed, call);
    const SacOptions options = {!fixed_alpha, fixed_alpha.value_or(0.0f), target_entropy,
                                max_grad_norm, tau};
    const auto shape = static_cast<npy_intp>(n);
    ArrayOut<float> errors(nullptr, "out", 1, &shape);
    SacMetrics m;
    self.use([&](SacCore* core) {
      Adam actor_adam = core->actor.adam(), critics_adam = core->critics.adam(),
           alpha_adam = core->alpha.adam();
      Team::lead(threads, [&](Team& team) {
        m = core->learning.step(args.rows(), noise.noise(), options,
                                {&actor_adam, &critics_adam, &alpha_adam}, errors.data(), team);
      });
    });
    return with_errors({m.critic_loss, m.actor_loss, m.alpha, m.alpha_loss, m.entropy, m.q_value},
                       &errors);
  });
}

nb::object td3_step(Td3Learner& self, nb::handle batch, nb::handle given_noise, std::uint64_t seed,
                    std::uint64_t call, float target_noise, float noise_clip, double max_grad_norm,
                    float tau, bool moves_actor, std::optional<float> bc_weight,
                    std::size_t threads) {
  return passing_errors([&] {
    const DeterministicActor& actor = self.core().learning.actor();
    const BatchArguments args(batch.ptr(), actor.n_obs(), actor.n_actions());
    const std::size_t n = args.rows().n;
    const NoiseArgument noise(given_noise.ptr(), {n, actor.n_actions()}, seed, call);
    const Td3Options options = {target_noise, noise_clip,  max_grad_norm,
                                tau,          moves_actor, bc_weight};
    const auto shape = static_cast<npy_intp>(n);
    ArrayOut<float> errors(nullptr, "out", 1, &shape);
    Td3Metrics m;
    self.use([&](Td3Core* core) {
      Adam actor_adam = core->actor.adam(), critics_adam = core->critics.adam();
      Team::lead(threads, [&](Team& team) {
        m = core->learning.step(args.rows(), noise.noise(), options, {&actor_adam, &critics_adam},
                                errors.data(), team);
      });
    });
    return with_errors({m.critic_loss, m.actor_loss, m.q_value}, &errors);
  });
}

// Actions [n, n_actions] of a network whose parameters Python owns.
template <typename Network, typename Pass>
class Player {
 public:
  Player(Network network, PyObject* parameters)
      : network_(std::move(network)),
        parameters_(parameters, "parameters", network_.n_parameters()) {}
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  // Calls choose(network, parameters, obs, n, pass, actions).
  template <typename Choose>
  nb::object act(nb::handle given_obs, Choose&& choose) {
    return passing_errors([&] {
      const ObsArgument obs(given_obs.ptr(), network_.n_obs());
      const npy_intp shape[] = {static_cast<npy_intp>(obs.n()),
                                static_cast<npy_intp>(network_.n_actions())};
      ArrayOut<float> actions(nullptr, "out", 2, shape);
      {
        const MaybeReleaseGil release(static_cast<double>(obs.n() * network_.n_parameters()) /
                                      20.0);
        const std::lock_guard lock(mutex_);
        choose(network_, parameters_.data(), obs.data(), obs.n(), &pass_, actions.data());
      }
      return actions.finish();
    });
  }

 private:
  Network network_;
  FloatMemory parameters_;
  Pass pass_;
  std::mutex mutex_;
};

using SquashedPlayer = Player<SquashedActor, SquashedPass>;
using DeterministicPlayer = Player<DeterministicActor, DeterministicPass>;

void construct_squashed(SquashedPlayer* memory, std::size_t n_obs, std::size_t n_actions,
                        const Sizes& hidden, const std::string& activation, nb::handle parameters) {
  passing_errors([&] {
    const Form form(n_obs, n_actions, hidden, activation);
    new (memory) SquashedPlayer(form.squashed(), parameters.ptr());
    Py_RETURN_NONE;
  });
}

void construct_deterministic(DeterministicPlayer* memory, std::size_t n_obs, std::size_t n_actions,
                             const Sizes& hidden, const std::string& activation,
                             nb::handle parameters) {
  passing_errors([&] {
    const Form form(n_obs, n_actions, hidden, activation);
    new (memory) DeterministicPlayer(form.deterministic(), parameters.ptr());
    Py_RETURN_NONE;
  });
}

nb::object squashed_mode(SquashedPlayer& self, nb::handle obs) {
  return self.act(obs, [](const SquashedActor& network, auto... args) { network.act(args...); });
}

nb::object squashed_explore(SquashedPlayer& self, nb::handle obs, std::uint64_t seed,
                            std::uint64_t call) {
  return self.act(obs, [&](const SquashedActor& network, const float* parameters, const float* rows,
                           std::size_t n, SquashedPass* pass, float* actions) {
    network.explore(parameters, rows, n, Philox(seed, call), pass, actions);
  });
}

nb::object deterministic_explore(DeterministicPlayer& self, nb::handle obs, float deviation,
                                 std::uint64_t seed, std::uint64_t call) {
  return self.act(
      obs, [&](const DeterministicActor& network, const float* parameters, const float* rows,
               std::size_t n, DeterministicPass* pass, float* actions) {
        network.explore(parameters, rows, n, deviation, Philox(seed, call), pass, actions);
      });
}

nb::object deterministic_mode(DeterministicPlayer& self, nb::handle obs) {
  return deterministic_explore(self, obs, 0.0f, 0, 0);
}

nb::object normals(std::uint64_t seed, std::uint64_t call, std::size_t n) {
  return passing_errors([&] {
    const auto shape = static_cast<npy_intp>(n);
    ArrayOut<float> numbers(nullptr, "out", 1, &shape);
    draw_normals(Philox(seed, call), 0, 0, n, numbers.data());
    return numbers.finish();
  });
}

}  // namespace

void bind_actor_critic(PyObject* module) {
  nb::module_ m = nb::borrow<nb::module_>(module);
  nb::class_<SacLearner>(m, "SACLearner",
                         "Steps of SAC. Networks that are optimized are (data, grad, exp_avg, "
                         "exp_avg_sq, steps, lr, beta1, beta2, eps), `targets` the data of the "
                         "slow critics. A batch is (obs, actions, rewards, next_obs, discounts, "
                         "weights), of which the last may be None.")
      .def("__init__", construct_sac, "n_obs"_a, "n_actions"_a, "hidden"_a, "activation"_a,
           "n_critics"_a, "critic_hidden"_a, "actor"_a, "critics"_a, "alpha"_a, "targets"_a,
           nb::sig("def __init__(self, n_obs: int, n_actions: int, hidden: Sequence[int], "
                   "activation: str, n_critics: int, critic_hidden: Sequence[int], "
                   "actor: tuple[Any, ...], "
                   "critics: tuple[Any, ...], alpha: tuple[Any, ...], targets: Any) -> None"))
      .def("step", sac_step, "batch"_a, "noise"_a.none(), "seed"_a, "call"_a,
           "fixed_alpha"_a.none(), "target_entropy"_a, "max_grad_norm"_a, "tau"_a, "threads"_a,
           nb::sig("def step(self, batch: tuple[Any, ...], noise: Any, seed: int, call: int, "
                   "fixed_alpha: float | None, target_entropy: float, max_grad_norm: float, "
                   "tau: float, threads: int) -> tuple[NDArray[numpy.float64], "
                   "NDArray[numpy.float32]]"),
           "One gradient step; the metrics, and the errors. Noise [2, n, n_actions] is drawn where "
           "it is None.");
  nb::class_<Td3Learner>(m, "TD3Learner", "Steps of TD3 and TD3+BC; as `SACLearner`.")
      .def("__init__", construct_td3, "n_obs"_a, "n_actions"_a, "hidden"_a, "activation"_a,
           "n_critics"_a, "critic_hidden"_a, "actor"_a, "critics"_a, "target_actor"_a,
           "target_critics"_a,
           nb::sig("def __init__(self, n_obs: int, n_actions: int, hidden: Sequence[int], "
                   "activation: str, n_critics: int, critic_hidden: Sequence[int], "
                   "actor: tuple[Any, ...], "
                   "critics: tuple[Any, ...], target_actor: Any, target_critics: Any) -> None"))
      .def("step", td3_step, "batch"_a, "noise"_a.none(), "seed"_a, "call"_a, "target_noise"_a,
           "noise_clip"_a, "max_grad_norm"_a, "tau"_a, "moves_actor"_a, "bc_weight"_a.none(),
           "threads"_a,
           nb::sig("def step(self, batch: tuple[Any, ...], noise: Any, seed: int, call: int, "
                   "target_noise: float, noise_clip: float, max_grad_norm: float, tau: float, "
                   "moves_actor: bool, bc_weight: float | None, threads: int) -> "
                   "tuple[NDArray[numpy.float64], NDArray[numpy.float32]]"),
           "One gradient step; the metrics, and the errors. Noise [n, n_actions] is drawn where it "
           "is None.");
  nb::class_<SquashedPlayer>(m, "SquashedActor", "Actions of the tanh of a normal variable.")
      .def("__init__", construct_squashed, "n_obs"_a, "n_actions"_a, "hidden"_a, "activation"_a,
           "parameters"_a,
           nb::sig("def __init__(self, n_obs: int, n_actions: int, hidden: Sequence[int], "
                   "activation: str, parameters: Any) -> None"))
      .def("mode", squashed_mode, "obs"_a,
           nb::sig("def mode(self, obs: Any) -> NDArray[numpy.float32]"), "The tanh of the mean.")
      .def("explore", squashed_explore, "obs"_a, "seed"_a, "call"_a,
           nb::sig("def explore(self, obs: Any, seed: int, call: int) -> NDArray[numpy.float32]"),
           "Drawn actions, a function of the seed and the number of the call.");
  nb::class_<DeterministicPlayer>(m, "DeterministicActor",
                                  "Actions that are the tanh of a network.")
      .def("__init__", construct_deterministic, "n_obs"_a, "n_actions"_a, "hidden"_a,
           "activation"_a, "parameters"_a,
           nb::sig("def __init__(self, n_obs: int, n_actions: int, hidden: Sequence[int], "
                   "activation: str, parameters: Any) -> None"))
      .def("mode", deterministic_mode, "obs"_a,
           nb::sig("def mode(self, obs: Any) -> NDArray[numpy.float32]"), "The actions.")
      .def("explore", deterministic_explore, "obs"_a, "deviation"_a, "seed"_a, "call"_a,
           nb::sig("def explore(self, obs: Any, deviation: float, seed: int, call: int) -> "
                   "NDArray[numpy.float32]"),
           "With normal noise, and clipped to [-1, 1].");
  m.def("normals", normals, "seed"_a, "call"_a, "n"_a,
        nb::sig("def normals(seed: int, call: int, n: int) -> NDArray[numpy.float32]"),
        "Standard normal variables, a function of the seed and the number of the call.");
}

}  // namespace sharpwave::bind
