"""Rollouts replayed as graphs, with a stand-in for those of CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import sharpwave as sw
from sharpwave.errors import NonFiniteError
from sharpwave.tensors import GraphedRollouts
from tests.recorded import Recorded
from tests.unit.envs.tensor_envs import NamedPoints, Points, ReusingPoints

OPTIONS: dict[str, Any] = {"n_steps": 7, "backend": "torch", "batch_size": 28, "seed": 3}


class OnCPU(GraphedRollouts):
    """Replays on the CPU."""

    def __init__(self, collector: Any, learner: Any) -> None:
        self._collector, self._steps, self._actor = collector, collector.steps, collector.actor
        self._learner, self._buffer, self._discounts = learner, None, None
        self._made_of, self._is_given_up = learner.made_of(), False
        self.captured = 0
        self.clear()

    def _capture(self, call: Callable[[], Any]) -> tuple[Any, Any]:
        self.captured += 1
        with Recorded() as recorded:
            return recorded, call()


@pytest.fixture(autouse=True)
def advantages_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Native code, which computes on the CPU otherwise, is not recorded."""

    def plain(rewards: Any, values: Any, **given: Any) -> None:
        following = torch.cat((values[1:], given["bootstrap"][None]))
        following = torch.where(given["truncated"], given["final_values"], following)
        is_over = given["terminated"] | given["truncated"]
        gamma, lam = given["gamma"], given["lam"]
        deltas = rewards + gamma * following * ~given["terminated"] - values
        advantage = torch.zeros_like(deltas[0])
        for t in reversed(range(len(deltas))):
            advantage = deltas[t] + gamma * lam * ~is_over[t] * advantage
            given["out"][0][t] = advantage
        given["out"][1].copy_(given["out"][0] + values)

    monkeypatch.setattr("sharpwave.tensors.buffers.rollout.gae", plain)
    # The statistics of episodes look at numbers on the CPU.
    monkeypatch.setattr("sharpwave.tensors.episodes.TensorEpisodes.update", lambda *_: None)


def rollouts(env: Any, n: int, *, graphed: bool, **options: Any) -> tuple[Any, list[Any]]:
    """An agent after some rollouts, and copies of their columns."""
    ppo = sw.PPO(env, **{**OPTIONS, **options})
    collector = ppo.collector
    if graphed:
        collector.graphs = OnCPU(collector, ppo.learner)
    found = []
    for _ in range(n):
        batch = ppo.loop.collect()
        assert batch is not None
        found.append({k: _copy(v) for k, v in vars(batch).items() if v is not None})
        with torch.no_grad():  # other weights for the next
            ppo.flat.data.add_(0.01)
    return ppo, found


def _copy(tree: Any) -> Any:
    return {k: _copy(v) for k, v in tree.items()} if isinstance(tree, dict) else tree.clone()


class Masked(ReusingPoints):
    """The masked points, whose memory is the same in every step, with discrete actions."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        from gymnasium import spaces

        self.single_action_space = spaces.Discrete(3)

    def step(self, actions: Any) -> Any:
        return super().step(actions[:, None].float() - 1)


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "plain": (Points, {}),
    "dict": (NamedPoints, {}),
    "reused": (Masked, {}),
    "no-final": (lambda n: Points(n, tells_final=False), {}),
    "squashed": (Points, {"squash_actions": True}),
    "recurrent": (Points, {"recurrent": "gru"}),
    "even": (Points, {"n_steps": 8, "batch_size": 32}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_replayed_rollout_is_that_of_the_collector(name: str) -> None:
    make, options = CASES[name]
    _, plain = rollouts(make(4), 5, graphed=False, **options)
    ppo, graphed = rollouts(make(4), 5, graphed=True, **options)
    n_steps = options.get("n_steps", OPTIONS["n_steps"])
    assert ppo.collector.graphs.captured == n_steps + 1
    assert ppo.timesteps == 5 * 4 * n_steps
    for expected, found in zip(plain, graphed, strict=True):
        assert found.keys() == expected.keys()
        for column, value in expected.items():
            torch.testing.assert_close(found[column], value, rtol=0, atol=0)


class Forgetful(Points):
    """Stops to tell the last observations from its tenth step on, and gives doubles."""

    taken = 0

    def step(self, actions: Any) -> Any:
        self.taken += 1
        obs, rewards, *rest = super().step(actions)
        return obs, rewards.double() if self.taken > 17 else rewards, *rest


def test_an_environment_that_gives_something_else_is_stepped_without_graphs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, plain = rollouts(Forgetful(4), 5, graphed=False)
    ppo, graphed = rollouts(Forgetful(4), 5, graphed=True)
    assert not ppo.collector.graphs.can_collect
    assert "without CUDA graphs" in capsys.readouterr().err
    for expected, found in zip(plain, graphed, strict=True):
        for column, value in expected.items():
            torch.testing.assert_close(found[column], value, rtol=0, atol=0)


def test_a_method_that_is_assigned_is_called() -> None:
    ppo, _ = rollouts(Points(4), 3, graphed=True)
    seen, act = [], ppo.learner.act

    def mine(*args: Any, **options: Any) -> Any:
        seen.append(1)
        return act(*args, **options)

    ppo.learner.act = mine
    ppo.loop.collect()
    assert len(seen) == OPTIONS["n_steps"]


@pytest.mark.parametrize("what", ["method", "layer"])
def test_a_policy_that_is_changed_is_what_acts(what: str) -> None:
    ppo, _ = rollouts(Points(4), 3, graphed=True)
    assert ppo.collector.graphs.can_collect
    seen, act = [], ppo.policy.act

    def mine(*args: Any, **options: Any) -> Any:
        seen.append(1)
        return act(*args, **options)

    if what == "method":
        ppo.policy.act = mine
    else:
        ppo.policy.actor[1] = torch.nn.ReLU()
    assert not ppo.collector.graphs.can_collect
    ppo.loop.collect()
    assert len(seen) == (OPTIONS["n_steps"] if what == "method" else 0)


def test_another_buffer_is_written_to() -> None:
    """Graphs know a buffer by its memory, which another one may not have."""
    ppo, _ = rollouts(Points(4), 3, graphed=True)
    collector, graphs = ppo.collector, ppo.collector.graphs
    for _ in range(3):
        collector.buffer = None
        ppo.loop.collect()
        graphs.captured = 0
        ppo.loop.collect()
        assert graphs.captured == OPTIONS["n_steps"] + 1


def test_numbers_that_are_not_finite_are_named_by_the_next_rollout() -> None:
    class Broken(Points):
        def step(self, actions: Any) -> Any:
            obs, rewards, *rest = super().step(actions)
            return obs, rewards / 0 if self.broken else rewards, *rest

        broken = False

    env = Broken(4)
    ppo, _ = rollouts(env, 3, graphed=True)
    env.broken = True
    ppo.loop.collect()
    with pytest.raises(NonFiniteError, match=f"by step {4 * 4 * 7}"):
        ppo.loop.collect()


def test_rollouts_go_on_after_a_checkpoint(tmp_path: Any) -> None:
    ppo, _ = rollouts(Points(4), 3, graphed=True)
    state = ppo.loop.state_dict()
    ppo.loop.load_state_dict(state, in_flight=False, source="here")
    ppo.collector.graphs.captured = 0
    for _ in range(2):
        assert ppo.loop.collect() is not None
    assert ppo.collector.graphs.captured == OPTIONS["n_steps"] + 1
