"""Overrides: a learner's subclass runs as written, in every algorithm, however it is made.

A method of a learner that is changed on the agent raises, since nothing would call it.
"""

from __future__ import annotations

from collections import Counter
from functools import cache, cached_property
from pathlib import Path
from types import FunctionType
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.loops.actor_learner import ActorLearnerLoop
from sharpwave.storage.checkpoints import as_arrays
from tests.contract.learners import LEARNERS, parameters, state_of

every = pytest.mark.parametrize("name", LEARNERS)
with_twin = pytest.mark.parametrize("name", [x for x in LEARNERS if LEARNERS[x].native])
OF_NETWORK = {
    "loss": None,  # of the only one
    "critic_loss": "critics",
    "critic_losses": "critics",
    "joint_loss": "critics",
    "q_loss": "critics",
    "value_loss": "value",
    "actor_loss": "actor",
}
"""The network that a loss moves."""


def methods_of(cls: type) -> dict[str, Any]:
    """Public methods and properties of a learner, by inspection."""
    found: dict[str, Any] = {}
    for kind in cls.__mro__:
        for name, value in vars(kind).items():
            if isinstance(value, FunctionType | property | cached_property):
                found.setdefault(name, value)
    return {name: value for name, value in found.items() if not name.startswith("_")}


def counted(base: Any, names: Any, calls: Counter[str], change: Any = None) -> Any:
    """A subclass whose methods of these names count their calls and do what they did."""
    methods = methods_of(base)

    def wrap(name: str) -> Any:
        def method(self: Any, *args: Any, **options: Any) -> Any:
            calls[name] += 1
            result = getattr(super(mine, self), name)
            if isinstance(methods[name], FunctionType):
                result = result(*args, **options)
            return result if change is None else change(result)

        if isinstance(methods[name], FunctionType):
            return method
        if isinstance(methods[name], cached_property):
            wrapper = cached_property(method)
            wrapper.__set_name__(None, name)  # type: ignore[arg-type]
            return wrapper
        return property(method, methods[name].fset)

    mine = type("Mine", (base,), {name: wrap(name) for name in names})
    return mine


def run(name: str, **options: Any) -> Any:
    """An agent after a few updates and one prediction."""
    learner = LEARNERS[name]
    agent = learner.make(**options)
    agent.train(learner.steps)
    agent.predict(np.zeros(agent.observation_space.shape, np.float32))
    return agent


@cache
def everything_changed(name: str) -> tuple[Counter[str], dict[str, bytes]]:
    """Calls and weights of a run in which no method of the learner is the library's own."""
    calls: Counter[str] = Counter()
    kind = LEARNERS[name].cls.Learner
    agent = run(name, learner=counted(kind, methods_of(kind), calls))
    return Counter(calls), state_of(agent)


def zero(result: Any) -> Any:
    """A loss, or losses and measurements of them, without a gradient."""
    if isinstance(result, tuple):
        return tuple(x * 0 if getattr(x, "requires_grad", False) else x for x in result)
    return result * 0


@pytest.mark.long(but=["a2c", "ppo"])
@every
def test_each_method_alone_is_called_as_often_as_with_all_others_and_learning_is_the_same(
    name: str,
) -> None:
    """A subclass that changed a loss left native code, and a gradient written out by hand learned.

    It stood for the stock method, so that the changed one was never called.
    """
    kind = LEARNERS[name].cls.Learner
    expected, weights = everything_changed(name)
    assert {"build", "act", "update", "follow", "rates", *kind.losses} <= {*expected}
    for method, count in expected.items():
        calls: Counter[str] = Counter()
        agent = run(name, learner=counted(kind, [method], calls))
        assert calls[method] == count > 0, method
        assert state_of(agent) == weights, method


@pytest.mark.long(but=["ppo", "dqn"])
@every
def test_a_run_with_methods_that_do_what_they_did_is_the_run_of_torch(name: str) -> None:
    learner = LEARNERS[name]
    _, weights = everything_changed(name)
    agent = run(name, backend="torch")
    # Its actors are native code but for a changed `act`.
    if getattr(learner.cls, "Loop", None) is ActorLearnerLoop:
        agent = run(name, learner=counted(learner.cls.Learner, ["act"], Counter()))
    if learner.cls is sw.HybridPPO:  # whose rollouts are others where native code collects them
        agent = sw.PPO("CartPole-v1", **learner.options, seed=3, backend="torch")
        agent.train(learner.steps)
    assert state_of(agent) == weights


@pytest.mark.long(but=["ppo"])
@with_twin
def test_native_code_is_left_for_any_method_that_is_changed(name: str) -> None:
    """Derived by inspection: whatever has a name of the learner's, also what no test run calls."""
    learner = LEARNERS[name]
    kind = learner.cls.Learner
    names = {x for x in dir(kind) if not x.startswith("_")} | {"__init__", "__setattr__"}
    assert {"state_dict", "Sampler", "is_random", "make_generator"} <= names
    for method in names:
        changed = type("Mine", (kind,), {method: getattr(kind, method)})
        with pytest.raises(ValueError, match=rf"got 'native': Mine changes {method}"):
            learner.make(backend="native", learner=changed)
    mine = learner.make(learner=type("Mine", (kind,), {"__init__": kind.__init__}))
    assert mine.backend == "torch"
    assert type(mine.learner).__name__ == "Mine"


@with_twin
def test_native_code_stays_where_nothing_of_its_own_is_changed(name: str) -> None:
    learner = LEARNERS[name]

    class Mixin:
        """Has nothing that learners have."""

        extra: int = 3

    class Mine(Mixin, learner.cls.Learner):  # type: ignore[misc, name-defined]
        """Adds what nothing of the library calls."""

        annotated: int

        def distance(self) -> int:
            return self.extra

        @property
        def doubled(self) -> int:
            return 2 * self.distance()

    plain, mine = (learner.make(**options) for options in ({}, {"learner": Mine}))
    assert plain.backend == mine.backend == "native"
    for agent in (plain, mine):
        agent.train(learner.steps)
    assert state_of(plain) == state_of(mine)
    assert (mine.learner.distance(), mine.learner.doubled) == (3, 6)


def ways(base: Any, loss: str, calls: Counter[str]) -> dict[str, Any]:
    """Learners and an assignment that take the gradient out of a loss."""
    stock = getattr(base, loss)

    def zeroed(self: Any, *args: Any) -> Any:
        calls[loss] += 1
        return zero(stock(self, *args))

    changed = type("Changed", (base,), {loss: zeroed})
    return {
        "subclass": changed,
        "subclass of a subclass": type("Named", (changed,), {}),
        "mixin": type("Mixed", (type("Mixin", (), {loss: zeroed}), base), {}),
        "property": type("Given", (base,), {loss: property(lambda self: zeroed.__get__(self))}),
        "assignment": zeroed,
    }


@pytest.mark.long(but=["a2c", "ppo", "hybrid_ppo", "dqn", "c51", "bc", "bc-discrete"])
@every
def test_a_loss_without_a_gradient_moves_nothing_however_it_was_changed(name: str) -> None:
    """`loss * 0` ended bit-equal to the stock algorithm."""
    learner = LEARNERS[name]
    start = parameters(learner.make(backend="torch"))
    if name == "dreamer_v3":
        pytest.skip("one optimizer moves all networks by both losses")
    for loss in learner.losses:
        calls: Counter[str] = Counter()
        network = OF_NETWORK[loss] or next(iter(start))
        for way, mine in ways(learner.cls.Learner, loss, calls).items():
            if way == "assignment":
                agent = learner.make(backend="torch")
                setattr(agent.learner, loss, mine.__get__(agent.learner))
            elif way == "subclass of a subclass":  # named by the agent's class
                agent = learner.make(type("MyAgent", (learner.cls,), {"Learner": mine}))
            else:
                agent = learner.make(learner=mine)
            calls.clear()
            agent.train(learner.steps)
            assert calls[loss] > 0, way
            after = parameters(agent)
            assert np.array_equal(after[network], start[network]), way
            moved = [other for other in start if not np.array_equal(after[other], start[other])]
            assert moved or len(start) == 1, way


@pytest.mark.long(but=["ppo", "dqn"])
@every
def test_a_learner_is_given_or_named_by_the_class_alike(name: str) -> None:
    learner = LEARNERS[name]
    loss, calls = learner.losses[0], Counter[str]()
    mine = counted(learner.cls.Learner, [loss], calls)
    named = type("MyAgent", (learner.cls,), {"Learner": mine})
    agents = [run(name, learner=mine), run(name, cls=named)]
    assert calls[loss] % 2 == 0
    assert calls[loss] > 0
    assert all(isinstance(agent.learner, mine) for agent in agents)
    assert state_of(agents[0]) == state_of(agents[1])
    if learner.native:
        for options in ({"learner": mine}, {"cls": named}):
            with pytest.raises(ValueError, match=f"'native': Mine changes {loss}"):
                learner.make(backend="native", **options)


@pytest.mark.long(but=["ppo"])
@pytest.mark.parametrize("name", ["ppo", "sac", "td3_bc", "iql"])
def test_a_checkpoint_of_a_changed_learner_says_so_where_another_goes_on(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Given back with the stock loss, a run would go on with another algorithm unnoticed."""
    learner = LEARNERS[name]
    mine = counted(learner.cls.Learner, [learner.losses[0]], Counter())
    named: Any = type("MyAgent", (learner.cls,), {"Learner": mine})
    agent = learner.make(learner=mine)
    agent.train(learner.steps)
    agent.save(tmp_path / "a")
    world = {} if learner.is_online else {"dataset": learner.world()}
    again = learner.cls.from_checkpoint(tmp_path / "a", learner=mine, **world)
    assert isinstance(again.learner, mine)
    assert isinstance(named.from_checkpoint(tmp_path / "a", **world).learner, mine)
    assert capfd.readouterr().err == ""
    stock = learner.cls.from_checkpoint(tmp_path / "a", **world)
    assert "was trained by the learner Mine" in capfd.readouterr().err
    stock.save(tmp_path / "b")
    learner.cls.from_checkpoint(tmp_path / "b", **world)
    assert capfd.readouterr().err == ""
    assert state_of(again) == state_of(agent)
    for network, weights in parameters(agent).items():
        assert np.array_equal(parameters(stock)[network], weights)


@pytest.mark.parametrize("name", ["ppo", "sac", "iql"])
def test_an_agent_takes_over_the_state_of_another(name: str) -> None:
    learner = LEARNERS[name]
    agent, other = (learner.make(backend="torch", seed=seed) for seed in (1, 2))
    agent.train(learner.steps)
    assert state_of(agent) != state_of(other)
    other.load_state_dict(as_arrays(agent.state_dict()))
    assert state_of(agent) == state_of(other)
    assert other.learner.updates == agent.learner.updates > 0
    other.train(learner.steps)


@pytest.mark.long(but=["ppo", "dqn"])
@every
def test_a_method_that_is_replaced_in_the_class_is_followed_too(name: str) -> None:
    learner = LEARNERS[name]
    loss = learner.losses[0]
    # The class that defines it, which may be one that others are derived from.
    owner = next(kind for kind in learner.cls.Learner.__mro__ if loss in vars(kind))
    stock = vars(owner)[loss]
    before = learner.make(backend="torch")
    with mock.patch.object(owner, loss, autospec=True, side_effect=stock) as patched:
        learner.make().train(learner.steps)
        count = patched.call_count
        assert count > 0
        before.train(learner.steps)
        assert patched.call_count == 2 * count


@pytest.mark.long(but=["ppo", "dqn"])
@every
def test_a_method_is_assigned_to_the_learner_in_the_middle_of_a_run_and_taken_back(
    name: str,
) -> None:
    learner = LEARNERS[name]
    agent = learner.make(backend="torch")
    agent.train(learner.steps)
    loss = learner.losses[0]
    calls: Counter[str] = Counter()
    stock = getattr(agent.learner, loss)

    def mine(*args: Any) -> Any:
        calls[loss] += 1
        return zero(stock(*args))

    before = parameters(agent)
    setattr(agent.learner, loss, mine)
    assert all(np.array_equal(before[key], now) for key, now in parameters(agent).items())
    steps = agent.timesteps
    agent.train(learner.steps)
    assert calls[loss] > 0
    assert agent.timesteps == steps + learner.steps
    delattr(agent.learner, loss)
    calls.clear()
    agent.train(learner.steps)
    assert not calls


@with_twin
def test_a_method_that_is_assigned_to_a_native_learner_raises(name: str) -> None:
    learner = LEARNERS[name]
    agent, other = learner.make(backend="native"), learner.make(backend="native")
    for method in methods_of(learner.cls.Learner):
        with pytest.raises(AttributeError, match=f'{method} would not be called.*"torch"'):
            setattr(agent.learner, method, lambda *args: args)
        assert method not in vars(agent.learner)
    for one in (agent, other):
        one.train(learner.steps)
    assert state_of(agent) == state_of(other)


@pytest.mark.long(but=["ppo", "dqn"])
@every
def test_a_method_of_the_learner_on_the_agent_raises_and_names_the_learner(name: str) -> None:
    """Nothing calls it there, so that a changed loss would learn as the stock one does."""
    cls = LEARNERS[name].cls
    names = [method for method in methods_of(cls.Learner) if method != "build"]
    assert {"act", "update", *cls.Learner.losses} <= {*names}
    agent = LEARNERS[name].make()
    for method in names:
        one = {method: lambda *args: args}
        mixin = type("Mixin", (), one)
        message = rf"\.{method} would not.*\({cls.Learner.__name__}\)"
        for bases, own in (((cls,), one), ((mixin, cls), {}), ((cls, mixin), {})):
            with pytest.raises(TypeError, match=message):
                type("Mine", bases, own)
        with pytest.raises(AttributeError, match=f"{method} is a method of the learner"):
            setattr(agent, method, lambda *args: args)
        assert method not in vars(agent)


@pytest.mark.parametrize("name", ["ppo", "sac", "bc"])
def test_a_method_that_is_assigned_to_the_class_of_an_agent_raises_too(name: str) -> None:
    cls = LEARNERS[name].cls
    loss = cls.Learner.losses[0]
    mine = type("Mine", (cls,), {})
    setattr(mine, loss, lambda *args: args)
    with pytest.raises(TypeError, match=rf"Mine\.{loss} would not be called"):
        LEARNERS[name].make(mine)


@every
def test_what_is_of_a_part_is_set_there(name: str) -> None:
    """`agent.updates = 5` was seen in the agent and nowhere else."""
    agent = LEARNERS[name].make()
    agent.timings = timings = {"update": 0.0, "callbacks": 0.0}
    agent.action_map = action_map = object()
    assert agent.timings is agent.loop.timings is timings
    assert agent.action_map is agent.learner.action_map is action_map
    agent.note = "of one's own"
    assert vars(agent)["note"] == agent.note == "of one's own"


@pytest.mark.parametrize("explore", [True, False], ids=["train", "predict"])
@every
def test_actions_are_those_of_the_changed_method(name: str, explore: bool) -> None:
    """Actions of few environments came from NumPy, whatever the changed method said."""
    learner = LEARNERS[name]
    played: list[bool] = []

    class Mine(learner.cls.Learner):  # type: ignore[misc, name-defined]
        def act(self, obs: Any, *, explore: bool, **memory: Any) -> Any:
            acted = super().act(obs, explore=explore, **memory)
            played.append(explore)
            return acted._replace(actions=torch.full_like(acted.actions, 1))

    agent = learner.make(learner=Mine)
    highest = getattr(agent.action_space, "high", 1)
    if not explore:
        action = agent.predict(agent.observation_space.sample())
        assert played == [False]
        assert np.all(action == highest)
    elif learner.replays:
        agent.train(learner.steps)
        ids = agent.buffer.indices()
        late = agent.buffer.gather(ids)["actions"][ids >= learner.options["learning_starts"]]
        assert played == [True] * len(played)
        assert len(late)
        assert (late == highest).all()
    elif learner.is_online:
        batch = agent.loop.collect()
        agent.close()
        # Actors of a fleet may have gone on meanwhile.
        assert played == [True] * max(len(played), learner.options["n_steps"])
        assert (np.asarray(batch.actions) == 1).all()


def test_native_rollouts_refuse_an_assigned_method_that_they_do_not_call() -> None:
    """The learner's `act` is not called while native code collects for torch."""
    agent = sw.HybridPPO("CartPole-v1", n_envs=2, n_steps=8, hidden=(8,), backend="torch", seed=0)
    assert agent.collection == "native"
    agent.train(16)
    stock = agent.learner.act
    agent.learner.act = lambda *args, **options: stock(*args, **options)
    with pytest.raises(RuntimeError, match="act of the learner is not called"):
        agent.train(16)
    del agent.learner.act
    agent.train(16)
    assert agent.timesteps == 32


@pytest.mark.parametrize("cls", [sw.PPO, sw.HybridPPO, sw.A2C])
def test_a_policy_of_a_class_of_ones_own_acts_and_is_evaluated(cls: Any) -> None:
    calls: Counter[str] = Counter()

    class Policy(sw.nn.ActorCritic):
        def act(self, *args: Any, **options: Any) -> Any:
            calls["act"] += 1
            return super().act(*args, **options)

        def evaluate(self, *args: Any, **options: Any) -> Any:
            calls["evaluate"] += 1
            return super().evaluate(*args, **options)

    class Mine(cls.Learner):  # type: ignore[misc]
        def make_policy(self) -> Any:
            return Policy(
                self.observation_space,
                self.action_space,
                hidden=(8,),
                generator=self.weights_generator,
            )

    agent = cls("CartPole-v1", n_envs=2, n_steps=8, seed=0, learner=Mine)
    agent.train(16)
    assert calls["act"] >= 8
    assert calls["evaluate"] > 0
    calls.clear()
    agent.predict(np.zeros(4, np.float32))
    assert calls["act"] == 1
