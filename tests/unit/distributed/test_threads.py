"""Fleets of threads: versions, bounds, failures, and nothing that is left behind."""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.distributed import ThreadFleet, Unroll
from sharpwave.errors import EnvironmentFailed, NonFiniteError
from sharpwave.testing.bits import state_of
from tests.envs import resumable, vectorized

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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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
    """Raises in a step of its own choice."""

    def __init__(self, in_step: int) -> None:
        super().__init__(resumable())
        self.steps, self.in_step = 0, in_step

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == self.in_step:
            raise RuntimeError("the pole broke")
        return self.env.step(action)


@pytest.mark.parametrize("deterministic", [False, True])
def test_an_actor_whose_environment_raises_is_made_again(deterministic: bool) -> None:
    """Every actor fails in its fourth unroll, again and again."""
    agent = sw.IMPALA(partial(Failing, 30), deterministic=deterministic, **OPTIONS)
    metrics = agent.train(960)
    stats = fleet_of(agent).stats()
    assert stats.failures == stats.restarts == stats.lost >= metrics["restarts"] >= 4
    assert metrics["lost_unrolls"] == metrics["restarts"]
    assert metrics["actors_alive"] == 2
    learned = 64 * agent.learner.updates
    assert agent.timesteps == learned + 32 * metrics["dropped_unrolls"] >= 960
    if deterministic:
        assert learned == 960
    agent.close()
    assert names() == []


@pytest.mark.parametrize("deterministic", [False, True])
def test_an_actor_that_fails_three_times_in_a_row_ends_the_run(deterministic: bool) -> None:
    """An actor's exception died silently, and the learner waited for it."""
    agent = sw.IMPALA(partial(Failing, 3), deterministic=deterministic, **OPTIONS)
    for rounds in (1, 2):
        with pytest.raises(EnvironmentFailed, match="the pole broke"):
            agent.train(5000)
        stats = fleet_of(agent).stats()
        # Two of three failures are followed by another life, of one actor or of both.
        assert 3 * rounds <= stats.failures <= 6 * rounds
        assert stats.restarts < stats.failures
        assert (stats.busy, stats.received_bytes) == (0, 0)
    agent.close()
    assert names() == []


class Unmakeable:
    """Makes environments for the agent and the second actor, and raises in its next calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Any:
        self.calls += 1
        if self.calls > 2:
            raise RuntimeError("no more poles")
        return Failing(3)


def test_an_actor_that_cannot_be_made_again_ends_the_run() -> None:
    agent = sw.IMPALA(Unmakeable(), **{**OPTIONS, "n_envs": 1})
    with pytest.raises(EnvironmentFailed, match="no more poles"):
        agent.train(5000)
    assert fleet_of(agent).stats().lost <= 2  # what was not begun is not lost
    agent.close()


def test_environments_that_cannot_be_made_again_fail_once() -> None:
    env = vectorized([partial(Failing, 3)] * 2, "same_step")
    agent = sw.IMPALA(env, n_actors=1, n_steps=8, hidden=(8,), seed=1)
    with pytest.raises(RuntimeError, match="the pole broke"):
        agent.train(5000)
    assert fleet_of(agent).stats().restarts == 0
    agent.close()


class Infinite(Failing):
    """Gives a reward that is not finite in a step of its own choice."""

    def step(self, action: Any) -> Any:
        self.steps += 1
        obs, reward, *rest = self.env.step(action)
        return obs, np.nan if self.steps == self.in_step else reward, *rest


def test_a_reward_that_is_not_finite_ends_the_run_and_is_named() -> None:
    agent = sw.IMPALA(partial(Infinite, 13), **OPTIONS)
    with pytest.raises(NonFiniteError, match=r"^actor [01]: rewards .* environment 0 at step 48$"):
        agent.train(5000)
    assert fleet_of(agent).stats().restarts == 0
    agent.close()


@WORLDS
def test_weights_that_are_not_finite_end_the_run_and_are_named(world: Any) -> None:
    agent: Any = sw.IMPALA(world, **OPTIONS)
    fleet, weights = fleet_of(agent), agent.learner.weights()
    fleet.start(weights, 0)
    received(fleet)
    weights[3] = np.nan

    def go_on() -> None:
        for version in range(1, 100):
            fleet.publish(weights, version)
            received(fleet)

    with pytest.raises(NonFiniteError, match=r"^actor [01]: weights .* at 3, at step \d+$"):
        go_on()
    agent.close()


def test_a_run_goes_on_from_a_checkpoint_after_failures(tmp_path: Path) -> None:
    """The first actor's own environments were saved, though they had been replaced."""
    world, options = partial(Failing, 30), {**OPTIONS, "deterministic": True}
    whole, half = (sw.IMPALA(world, **options) for _ in range(2))
    half.train(960)
    assert fleet_of(half).stats().restarts >= 2
    half.save(tmp_path / "half")
    again = sw.IMPALA.from_checkpoint(tmp_path / "half", env=world)
    assert again.timesteps == half.timesteps
    whole.train(960)
    assert state_of(whole) == state_of(half)
    saved, fleet = state_of(half), fleet_of(again)
    assert fleet.state_dict()["lives"] == fleet_of(half).state_dict()["lives"]
    assert state_of(again) == saved
    for agent in (whole, half, again):
        agent.close()


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
def test_a_long_unroll_is_given_up_where_the_fleet_stops() -> None:
    options = {**OPTIONS, "n_envs": 1, "n_steps": 5000}
    agent: Any = sw.IMPALA(Slow, **options)
    fleet_of(agent).start(agent.learner.weights(), 0)
    time.sleep(0.1)
    began = time.monotonic()
    agent.close()
    assert time.monotonic() - began < 2
    assert names() == []
