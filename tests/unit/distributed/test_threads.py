"""Fleets of threads, where environments cannot be made again."""

from __future__ import annotations

import multiprocessing
from functools import partial
from typing import Any

import pytest

import sharpwave as sw
from sharpwave.errors import ActorFailed, EnvironmentFailed
from tests.contract.fleets import OPTIONS, threads_left
from tests.envs import vectorized
from tests.fleet_envs import RELEASE, Failing, Hanging
from tests.processes import is_running
from tests.waiting import wait_for, without_hanging


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
    agent = sw.IMPALA(Unmakeable(), actors="threads", **{**OPTIONS, "n_envs": 1})
    with pytest.raises(EnvironmentFailed, match="no more poles"):
        agent.train(5000)
    assert agent.loop.fleet.stats().lost <= 2  # what was not begun is not lost
    agent.close()


@pytest.mark.parametrize("actors", ["threads", "auto"])
def test_threads_say_what_environments_of_python_cost(
    actors: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They work, and nobody is told who did not choose, or has one actor, or native code."""
    costs = "2 actors in threads take turns in environments of Python"
    agent = sw.IMPALA("CartPole-v1", env_mode="sync", actors=actors, **OPTIONS)
    assert (costs in capsys.readouterr().err) == (actors == "threads")
    if actors == "threads":
        assert agent.train(128)["actors_alive"] == 2
    agent.close()
    others: list[dict[str, Any]] = [{"n_actors": 1, "env_mode": "sync"}, {}]
    for options in others:
        sw.IMPALA("CartPole-v1", actors=actors, **options, **OPTIONS).close()
    assert "take turns" not in capsys.readouterr().err


def test_environments_that_cannot_be_made_again_fail_once() -> None:
    env = vectorized([partial(Failing, 3)] * 2, "same_step")
    agent = sw.IMPALA(env, n_actors=1, n_steps=8, hidden=(8,), seed=1)
    with pytest.raises(RuntimeError, match="the pole broke"):
        agent.train(5000)
    assert agent.loop.fleet.stats().restarts == 0
    agent.close()


def test_environments_that_cannot_be_made_again_hang_once() -> None:
    """Nobody else may step them while a thread is still in there."""
    env = vectorized([partial(Hanging, 3)] * 2, "same_step")
    agent = sw.IMPALA(env, n_actors=1, n_steps=8, hidden=(8,), seed=1, step_timeout=3.0)
    for _ in range(2):
        with pytest.raises(ActorFailed, match=r"in step(.|\n)*did not come back within 3 s"):
            agent.train(5000)
        assert agent.loop.fleet.stats().failures == 1
    agent.close()
    RELEASE.set()
    wait_for(lambda: threads_left() == [])
    RELEASE.clear()


class Closing:
    """Makes environments, of which the first hangs; and counts those closed."""

    def __init__(self) -> None:
        self.made = self.closed = 0
        self.envs: list[Hanging] = []

    def __call__(self) -> Any:
        self.made += 1
        owner = self

        class Counted(Hanging):
            def close(self) -> None:
                owner.closed += 1

        self.envs.append(Counted(2 if self.made == 1 else 10**9))
        return self.envs[-1]


def test_actors_that_are_not_late_are_closed_beside_one_that_is() -> None:
    world = Closing()
    options = {**OPTIONS, "n_envs": 1}
    agent: Any = sw.IMPALA(world, n_actors=2, actors="threads", env_mode="sync", **options)
    fleet = agent.loop.fleet
    fleet.start(agent.learner.weights(), 0)
    wait_for(lambda: fleet.receive(0.01) is not None and world.envs[0].steps == 2)
    with pytest.raises(TimeoutError, match=r"sharpwave actor 0 did not end within 8.0 seconds"):
        fleet.stop(8.0)
    assert (world.made, world.closed) == (2, 1)
    RELEASE.set()
    wait_for(lambda: threads_left() == [])
    RELEASE.clear()
    agent.close()
    assert world.closed == 2


@pytest.mark.long
def test_processes_of_environments_that_hang_end_with_their_thread() -> None:
    agent: Any = sw.IMPALA(
        partial(Hanging, 3), n_actors=1, actors="threads", env_mode="async", **OPTIONS
    )
    fleet = agent.loop.fleet
    fleet.start(agent.learner.weights(), 0)
    wait_for(lambda: fleet.stats().busy == 1)
    started = [one.pid or 0 for one in multiprocessing.active_children()]
    with without_hanging():
        agent.close()
    assert len(started) >= OPTIONS["n_envs"]
    assert not any(map(is_running, started))
    assert threads_left() == []
