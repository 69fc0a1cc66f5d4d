"""DreamerV3 learns small tasks in its model of them, on seeds that nobody chose."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import sharpwave as sw
from sharpwave.compat.rlox.algorithms.dreamer import DreamerV3 as RloxDreamerV3
from sharpwave.types import Array
from tests.envs import Catch

EVERY = 1000
HOURS = pytest.mark.timeout(7200)  # some bars are half an hour of one core


class Evaluations(sw.Callback):
    """Mean returns of 16 episodes of the deterministic policy, every so many steps."""

    def __init__(self, every: int = EVERY) -> None:
        self.every, self.seen = every, []

    seen: list[float]

    def on_step(self, **_: Any) -> None:
        if self.agent.timesteps >= self.every * (len(self.seen) + 1):
            self.seen.append(self.agent.evaluate(16).mean)

    agent: Any


def learned(
    env: Any, steps: int, seed: int, every: int = EVERY, kind: Any = sw.DreamerV3, **options: Any
) -> Array:
    agent = kind(env, seed=seed, device="cpu", **options)
    evaluations = Evaluations(every)
    evaluations.agent = agent
    agent.train(steps, callbacks=evaluations)
    agent.close()
    return np.array(evaluations.seen)


@pytest.mark.long
def test_the_model_teaches_within_some_hundred_gradient_steps() -> None:
    found = learned("CartPole-v1", 1500, 11, every=500)
    assert found.max() >= 60  # a policy at random: 22


@HOURS
@pytest.mark.slow
def test_it_balances_a_pole() -> None:
    """Measured 500 each, and means of 290, 462, 455."""
    found = np.array([learned("CartPole-v1", 12_000, seed) for seed in (11, 12, 13)])
    best, means = found.max(1), found[:, 4:].mean(1)
    assert best.min() >= 400
    assert means.min() >= 200
    assert np.median(means) >= 250


@HOURS
@pytest.mark.slow
def test_it_swings_up_a_pendulum() -> None:
    """Measured -157 and -146."""
    last = [learned("Pendulum-v1", 14_000, seed)[-3:].mean() for seed in (11, 12)]
    assert min(last) >= -250


@HOURS
@pytest.mark.slow
def test_it_learns_with_the_sizes_and_defaults_of_rlox() -> None:
    """Measured 500 and 462."""
    best = [learned("CartPole-v1", 8000, seed, kind=RloxDreamerV3).max() for seed in (42, 21)]
    assert min(best) >= 300


@HOURS
@pytest.mark.slow
def test_it_learns_from_images() -> None:
    """Measured 1.0 from 4,000 steps on; at random -0.6."""
    assert learned(Catch, 10_000, 11)[-3:].mean() >= 0.8


class Still(gym.ObservationWrapper[Any, Any, Any]):
    """CartPole that does not show how fast it moves."""

    def __init__(self) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def observation(self, observation: Any) -> Any:
        return observation[[0, 2]].astype(np.float32)


@HOURS
@pytest.mark.slow
def test_it_remembers_what_tells_how_fast_the_pole_moves() -> None:
    """Measured 500 on seed 11 and 446 on seed 1, which was tuned on; without memory 47."""
    options: dict[str, Any] = {"batch_size": 8, "sequence_length": 32, "imag_last": 16}
    found = learned(Still, 10_000, 11, train_ratio=128, **options).max()
    forgetful = sw.PPO(Still, seed=21, n_envs=4, n_steps=64, batch_size=64, n_epochs=10)
    best = Evaluations()
    best.agent = forgetful
    forgetful.train(10_000, callbacks=best)
    assert found >= 200 > 100 > max(best.seen)


class Recall(gym.Env[Any, Any]):
    """Shows a sign once; 16 steps later a press is paid the sign, and no press nothing."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time, self.sign = 0, 2 * int(self.np_random.integers(2)) - 1
        return np.array([self.sign, 0], np.float32), {}

    def step(self, action: Any) -> Any:
        is_over = self.time == 16
        self.time += 1
        paid = float(self.sign * action) if is_over else 0.0
        return np.array([0, self.time == 16], np.float32), paid, is_over, False, {}


@HOURS
@pytest.mark.slow
def test_it_recalls_a_sign_after_sixteen_steps() -> None:
    """All answers were right from 1,000 steps on: 0.5 is the mean of that, 0 that of chance."""
    options: dict[str, Any] = {
        "batch_size": 8,
        "sequence_length": 36,
        "imag_last": 10,
        "train_ratio": 288.0,
        "latents": 2,
        "classes": 4,
        "update_bias": -3.0,
        "reward_coef": 10.0,
        "ent_coef": 3e-2,
        "learning_rate": 2e-3,
    }
    found = [learned(Recall, 3000, seed, every=250, **options) for seed in (21, 22, 23)]
    assert min(last[-4:].mean() for last in found) >= 0.3


def control(domain: str, task: str) -> Any:
    """A maker of a task of dm_control with vectors, each action taken twice."""
    suite = pytest.importorskip("dm_control.suite", reason="dm_control is not installed")

    class Control(gym.Env[Any, Any]):
        def __init__(self) -> None:
            self._env = suite.load(domain, task, task_kwargs={"random": 0})
            bounds = self._env.action_spec()
            self.action_space = spaces.Box(
                bounds.minimum.astype(np.float32), bounds.maximum.astype(np.float32)
            )
            shape = self._vector(self._env.reset()).shape
            self.observation_space = spaces.Box(-np.inf, np.inf, shape, np.float32)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed, options=options)
            if seed is not None:
                self._env.task.random.seed(seed % 2**32)
            return self._vector(self._env.reset()), {}

        def step(self, action: Any) -> Any:
            reward = 0.0
            for _ in range(2):
                step = self._env.step(action)
                reward += step.reward or 0.0
                if step.last():
                    break
            ended = step.last() and step.discount == 0.0
            return self._vector(step), reward, ended, step.last() and not ended, {}

        @staticmethod
        def _vector(step: Any) -> Array:
            parts = [np.ravel(x) for x in step.observation.values()]
            return np.concatenate(parts).astype(np.float32)

    return Control


@HOURS
@pytest.mark.slow
@pytest.mark.parametrize(
    ("domain", "task", "steps", "least"),
    [("cartpole", "balance", 50_000, 450), ("reacher", "easy", 100_000, 600)],
)
def test_it_controls_what_is_simulated(domain: str, task: str, steps: int, least: float) -> None:
    """The bars are below what its authors report at four times the train ratio."""
    env = control(domain, task)
    options: dict[str, Any] = {"preset": "state_control", "train_ratio": 256}
    found = learned(env, steps // 2, 11, every=steps // 8, **options)
    assert found[-2:].max() >= least
