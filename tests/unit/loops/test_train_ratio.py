"""Gradient steps by the number of steps that they replay."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.config.off_policy import OffPolicyConfig
from sharpwave.loops.pace import Pace
from sharpwave.testing.learner_case import own_loop

SMALL: dict[str, Any] = {
    "hidden": (8,),
    "batch_size": 16,
    "learning_starts": 32,
    "buffer_size": 500,
    "seed": 3,
}


@pytest.mark.parametrize("ratio", [0.1, 1 / 3, 1, 4.8, 16, 77.7])
@pytest.mark.parametrize("n_envs", [1, 3])
def test_every_step_is_replayed_as_often_as_asked_for(ratio: float, n_envs: int) -> None:
    agent = sw.DQN("CartPole-v1", n_envs=n_envs, train_ratio=ratio, **SMALL)
    agent.train(180)
    first = -(-32 // n_envs) * n_envs  # the first update counts the steps since the one before it
    counted = agent.timesteps - first + n_envs
    exact = Fraction(ratio).limit_denominator(10**9) * counted / 16
    assert agent.gradient_steps == math.floor(exact)


def test_updates_that_are_seldom_take_several_gradient_steps() -> None:
    agent = sw.DQN("CartPole-v1", n_envs=2, train_freq=5, train_ratio=4, **SMALL)
    agent.train(100)
    assert agent.gradient_steps == (100 - 40 + 10) * 4 // 16


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_a_run_goes_on_with_what_was_left_over(backend: Any, tmp_path: Path) -> None:
    options = {**SMALL, "train_ratio": 3.7, "backend": backend, "save_buffer": True}
    whole = sw.SAC("Pendulum-v1", **options)
    whole.train(90)
    part = sw.SAC("Pendulum-v1", **options)
    part.train(47)
    part.save(tmp_path / "part")
    rest = sw.SAC.from_checkpoint(tmp_path / "part")
    assert rest.config.train_ratio == 3.7
    rest.train(43)
    assert rest.gradient_steps == whole.gradient_steps == math.floor((90 - 32 + 1) * 3.7 / 16)
    obs = whole.observation_space.sample()
    np.testing.assert_array_equal(rest.predict(obs), whole.predict(obs))


def test_a_loop_of_ones_own_asks_how_many_are_due() -> None:
    runs = [sw.DQN("CartPole-v1", n_envs=2, train_ratio=5, **SMALL) for _ in range(2)]
    runs[0].train(100)
    own_loop(runs[1], 100)
    assert runs[1].gradient_steps == runs[0].gradient_steps
    obs = np.zeros(4, np.float32)
    assert runs[1].predict(obs) == runs[0].predict(obs)


def test_target_networks_count_environment_steps() -> None:
    agent = sw.DQN("CartPole-v1", train_ratio=8, target_update_freq=20, **SMALL)
    agent.train(200)
    lived = agent.learner.steps_lived()
    assert abs(lived - agent.timesteps) <= 2


def test_learners_together_replay_a_batch_each() -> None:
    config = OffPolicyConfig(batch_size=8, train_ratio=4)
    alone, two = Pace(config), Pace(config, 2)
    assert sum(alone.due(2) for _ in range(20)) == 20
    assert sum(two.due(2) for _ in range(20)) == 10


def test_options_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="train_ratio and gradient_steps exclude each other"):
        OffPolicyConfig(train_ratio=4, gradient_steps=8)
    with pytest.raises(ValueError, match="train_ratio and gradient_steps exclude each other"):
        OffPolicyConfig(train_ratio=4, gradient_steps=-1)
    for bad in (0, -1.0):
        with pytest.raises(ValueError, match="train_ratio must be greater than 0"):
            OffPolicyConfig(train_ratio=bad)
    with pytest.raises(ValueError, match="train_ratio must be between"):
        OffPolicyConfig(train_ratio=math.inf)
