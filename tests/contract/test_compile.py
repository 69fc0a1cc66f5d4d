"""`compile=True` means one thing: the losses that run are compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from sharpwave.learners.graphs import replay_as_graphs
from tests.contract.learners import LEARNERS, parameters, state_of
from tests.contract.test_overrides import everything_changed

every = pytest.mark.parametrize("name", LEARNERS)


def counting(calls: Counter[str]) -> Any:
    """A stand-in for torch.compile: it compiles nothing and counts what is called."""

    def compile(function: Callable[..., Any]) -> Any:
        def compiled(*args: Any, **options: Any) -> Any:
            calls[function.__name__] += 1
            return function(*args, **options)

        return compiled

    return compile


@pytest.mark.long(but=["ppo", "dqn"])
@every
def test_what_is_compiled_is_what_learning_calls(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of PPO, A2C and DQN with multi-layer perceptrons the compiled loss was never called."""
    learner = LEARNERS[name]
    calls: Counter[str] = Counter()
    monkeypatch.setattr(torch, "compile", counting(calls))
    agent = learner.make(compile=True)
    agent.train(learner.steps)
    agent.predict(agent.observation_space.sample())
    expected, _ = everything_changed(name)
    names = (*learner.cls.Learner.compiled_too, *learner.losses)
    assert calls == {method: expected[method] for method in names}
    assert calls
    assert all(calls.values())


@pytest.mark.long(but=["ppo", "dqn"])
@every
def test_also_where_the_loss_is_somebody_elses(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = LEARNERS[name]
    calls: Counter[str] = Counter()
    monkeypatch.setattr(torch, "compile", counting(calls))
    loss = learner.losses[0]
    stock, seen = getattr(learner.cls.Learner, loss), []

    def mine(self: Any, *args: Any) -> Any:
        seen.append(loss)
        return stock(self, *args)

    for agent in (
        learner.make(learner=type("Mine", (learner.cls.Learner,), {loss: mine}), compile=True),
        learner.make(compile=True),
    ):
        if type(agent.learner) is learner.cls.Learner:
            setattr(agent.learner, loss, mine.__get__(agent.learner))
        calls.clear()
        seen.clear()
        agent.train(learner.steps)
        assert len(seen) > 0
        assert calls["mine"] == len(seen)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # torch warns of itself where it compiles
@pytest.mark.parametrize("name", ["ppo", "dqn", "sac", "bc"])
def test_compiled_losses_learn_what_they_do_otherwise(name: str) -> None:
    learner = LEARNERS[name]
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    agent = learner.make(compile=True)
    agent.train(learner.steps)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    plain = learner.make(backend="torch")
    plain.train(learner.steps)
    for network, weights in parameters(plain).items():
        np.testing.assert_allclose(parameters(agent)[network], weights, atol=1e-3)
    assert state_of(plain).keys() == state_of(agent).keys()


class Replays:
    """A stand-in for CUDA graphs: after some calls, no Python runs any more."""

    replayed = 0

    def __init__(self, generator: torch.Generator) -> None:
        self.results: dict[Any, list[Any]] = {}

    def clear(self) -> None:
        self.results.clear()

    def run(self, key: Any, call: Callable[[], Any]) -> Any:
        results = self.results.setdefault(key, [])
        if len(results) < 2:
            results.append(call())
        else:
            Replays.replayed += 1
        return results[-1]


@pytest.mark.long(but=["ppo", "dqn"])
@every
def test_a_loss_that_is_assigned_is_called_where_updates_are_replayed_as_graphs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph repeats the kernels of the loss that was there when it was captured."""
    learner = LEARNERS[name]
    agent = learner.make(backend="torch")
    if agent.learner.update_kind() is None and agent.learner.captured == "update":
        pytest.skip("its updates are never replayed")
    monkeypatch.setattr("sharpwave.learners.graphs._Graphs", Replays)
    monkeypatch.setattr(Replays, "replayed", 0)
    replay_as_graphs(agent.learner)
    agent.learner.note = "no method"
    agent.train(2 * learner.steps)
    assert (count := Replays.replayed) > 0
    loss, seen = learner.losses[0], []
    stock = getattr(agent.learner, loss)

    def mine(*args: Any) -> Any:
        seen.append(loss)
        return stock(*args)

    setattr(agent.learner, loss, mine)
    before = agent.learner.updates
    agent.train(2 * learner.steps)
    assert len(seen) >= agent.learner.updates - before > 0
    assert Replays.replayed == count
