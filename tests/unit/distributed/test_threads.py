"""Fleets of threads, where environments cannot be made again."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import sharpwave as sw
from sharpwave.errors import EnvironmentFailed
from tests.contract.fleets import OPTIONS
from tests.envs import vectorized
from tests.fleet_envs import Failing


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


def test_environments_that_cannot_be_made_again_fail_once() -> None:
    env = vectorized([partial(Failing, 3)] * 2, "same_step")
    agent = sw.IMPALA(env, n_actors=1, n_steps=8, hidden=(8,), seed=1)
    with pytest.raises(RuntimeError, match="the pole broke"):
        agent.train(5000)
    assert agent.loop.fleet.stats().restarts == 0
    agent.close()
