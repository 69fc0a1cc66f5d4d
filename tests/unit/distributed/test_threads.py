"""Fleets of threads: versions, bounds, failures, and nothing that is left behind."""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.distributed import ThreadFleet, Unroll
from sharpwave.errors import EnvironmentFailed
from tests.envs import resumable

OPTIONS: dict[str, Any] = {"n_envs": 4, "n_steps": 8, "hidden": (8,), "seed": 1}
WORLDS = pytest.mark.parametrize("world", ["CartPole-v1", resumable], ids=["native", "python"])


def names() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("sharpwave actor")]


def fleet_of(agent: Any) -> ThreadFleet:
    fleet: ThreadFleet = agent.loop.fleet
    return fleet


@pytest.fixture(autouse=True)
def no_others() -> None:
    gc.collect()
    assert names() == []


def received(fleet: ThreadFleet) -> Unroll:
    unroll = fleet.receive(10.0)
    assert unroll is not None
    return unroll


@WORLDS
def test_unrolls_follow_each_other_and_their_weights(world: Any) -> None:
    """No unroll came twice or got lost, and the weights that it names are those that acted."""
    agent: Any = sw.IMPALA(world, **OPTIONS)
    fleet = fleet_of(agent)
    weights = agent.learner.weights()
    published = {0: weights}
    last: dict[int, Any] = {}
    fleet.start(weights, 0)
    for version in range(1, 500):
        unroll = received(fleet)
        rollout = unroll.rollout
        if unroll.actor in last:
            np.testing.assert_array_equal(rollout.obs[0], last[unroll.actor])
        last[unroll.actor] = rollout.last_obs
        agent.learner.follow_weights(published[unroll.version])
        rows = rollout.rows()
        log_probs, _, _ = agent.learner.policy.evaluate(
            torch.from_numpy(rows["obs"]), torch.from_numpy(rows["actions"])
        )
        np.testing.assert_allclose(log_probs.detach().numpy(), rows["log_probs"], atol=1e-5)
        published[version] = published[version - 1] * np.float32(0.99)
        fleet.publish(published[version], version)
        if version > 8 and len(last) == 2:  # threads take turns as they like
            break
    assert len(last) == 2
    agent.close()


def test_in_step_each_actor_makes_one_unroll_of_each_version() -> None:
    agent: Any = sw.IMPALA("CartPole-v1", n_actors=3, deterministic=True, **OPTIONS)
    fleet, weights = fleet_of(agent), agent.learner.weights()
    fleet.start(weights, 0)
    assert fleet.receive(0.05) is None
    for version in range(4):
        fleet.publish(weights, version)
    # However late an actor begins, its weights are those that it was asked for.
    fleet.start(weights, 99)
    seen = Counter((one.actor, one.version) for one in (received(fleet) for _ in range(12)))
    assert seen == Counter((actor, version) for actor in range(3) for version in range(4))
    assert fleet.receive(0.05) is None
    agent.close()


def test_actors_rest_where_enough_unrolls_wait() -> None:
    agent: Any = sw.IMPALA("CartPole-v1", max_in_flight=5, **OPTIONS)
    fleet = fleet_of(agent)
    fleet.start(agent.learner.weights(), 0)
    deadline = time.monotonic() + 10
    while fleet.stats().waiting < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    stats = fleet.stats()
    assert (stats.actors, stats.alive, stats.busy, stats.waiting) == (2, 2, 0, 5)
    agent.close()


def test_a_pause_leaves_the_environments_where_they_are() -> None:
    agent: Any = sw.IMPALA("CartPole-v1", max_in_flight=50, **OPTIONS)
    fleet = fleet_of(agent)
    fleet.start(agent.learner.weights(), 0)
    received(fleet)
    fleet.pause()
    before = fleet.stats().waiting
    time.sleep(0.05)
    assert fleet.stats().waiting == before
    assert fleet.stats().busy == 0
    fleet.start(agent.learner.weights(), 1)
    assert [received(fleet).version for _ in range(before + 3)][-1] == 1
    agent.close()


class Failing(gym.Wrapper[Any, Any, Any, Any]):
    """Raises in its 30th step."""

    def __init__(self) -> None:
        super().__init__(resumable())
        self.steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 30:
            raise RuntimeError("the pole broke")
        return self.env.step(action)


@pytest.mark.parametrize("deterministic", [False, True])
def test_what_an_environment_raises_ends_the_run(deterministic: bool) -> None:
    """An actor's exception died silently, and the learner waited for it."""
    agent = sw.IMPALA(Failing, deterministic=deterministic, **OPTIONS)
    with pytest.raises(EnvironmentFailed, match="the pole broke"):
        agent.train(5000)
    assert fleet_of(agent).stats().failures >= 1
    assert fleet_of(agent).stats().busy == 0
    agent.close()
    assert names() == []


@WORLDS
def test_nothing_is_left_of_a_fleet_that_is_closed(world: Any) -> None:
    agent = sw.IMPALA(world, max_in_flight=20, **OPTIONS)
    agent.train(256)
    assert len(names()) == 2
    began = time.monotonic()
    agent.close()
    assert time.monotonic() - began < 5
    assert names() == []
    with pytest.raises(RuntimeError, match="stopped"):
        agent.train(256)


def test_nothing_is_left_of_a_fleet_that_is_forgotten() -> None:
    agent = sw.IMPALA("CartPole-v1", **OPTIONS)
    agent.train(256)
    assert len(names()) == 2
    del agent
    gc.collect()
    assert names() == []


class Slow(gym.Wrapper[Any, Any, Any, Any]):
    """Takes its time."""

    def __init__(self) -> None:
        super().__init__(resumable())

    def step(self, action: Any) -> Any:
        time.sleep(0.02)
        return self.env.step(action)


def test_a_long_unroll_is_given_up_where_the_fleet_stops() -> None:
    options = {**OPTIONS, "n_envs": 1, "n_steps": 5000}
    agent: Any = sw.IMPALA(Slow, **options)
    fleet_of(agent).start(agent.learner.weights(), 0)
    time.sleep(0.1)
    began = time.monotonic()
    agent.close()
    assert time.monotonic() - began < 2
    assert names() == []
