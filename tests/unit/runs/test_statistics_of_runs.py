"""Statistics of a run are those of its environments."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import sharpwave as sw
from tests.envs import CountingEnv, RandomWalkEnv, vectorized
from tests.unit.agents.small_runs import STEPS_PER_UPDATE, small_ppo

KINDS = ["own", "next_step", "same_step", "disabled"]


class Diary(gym.Wrapper[Any, Any, Any, Any]):
    """Writes down the return and length of every episode that ended."""

    def __init__(self, env: gym.Env[Any, Any], episodes: list[tuple[float, int]]) -> None:
        super().__init__(env)
        self.episodes = episodes
        self.rewards: list[float] = []

    def reset(self, **kwargs: Any) -> Any:
        self.rewards = []
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        self.rewards.append(float(reward))
        if terminated or truncated:
            self.episodes.append((sum(self.rewards), len(self.rewards)))
        return obs, reward, terminated, truncated, info


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("cls", [sw.PPO, sw.A2C])
def test_episodes_are_those_that_ended(kind: str, normalize: bool, cls: Any) -> None:
    episodes: list[tuple[float, int]] = []
    makers = [lambda n=n: Diary(RandomWalkEnv(number=n, ends="both"), episodes) for n in range(3)]
    turns = iter(makers)
    env: Any = (lambda: next(turns)()) if kind == "own" else vectorized(makers, kind)
    algo = cls(env, n_envs=3, n_steps=10, normalize_obs=normalize, normalize_rewards=normalize)
    metrics = algo.train(120)
    assert algo.episodes.count == metrics["episodes"] == len(episodes) > 10
    counted = list(zip(algo.episodes.returns, algo.episodes.lengths, strict=True))
    np.testing.assert_allclose(sorted(counted), sorted(episodes), rtol=1e-6)
    assert metrics["mean_return"] == pytest.approx(np.mean([total for total, _ in episodes]))
    assert metrics["mean_length"] == pytest.approx(np.mean([length for _, length in episodes]))


def test_before_the_first_episode_ends_there_is_no_mean() -> None:
    metrics = small_ppo(partial(CountingEnv, (1000,))).train(200)
    assert math.isnan(metrics["mean_return"])
    assert metrics["episodes"] == 0


class Steps(sw.Callback):
    """Keeps the step that every hook is told."""

    def __init__(self) -> None:
        self.seen: dict[str, list[int]] = {}

    def _keep(self, hook: str, step: int) -> None:
        self.seen.setdefault(hook, []).append(step)

    def on_training_start(self, *, step: int, total_timesteps: int, **_: Any) -> None:
        self._keep("start", step)
        self._keep("total", total_timesteps)

    def on_step(self, *, step: int, **_: Any) -> None:
        self._keep("step", step)

    def on_rollout_end(self, *, step: int, **_: Any) -> None:
        self._keep("rollout", step)

    def on_train_batch(self, *, step: int, **_: Any) -> None:
        self._keep("update", step)

    def on_training_end(self, *, step: int, **_: Any) -> None:
        self._keep("end", step)


def test_every_hook_counts_environment_steps() -> None:
    steps = Steps()
    small_ppo().train(2 * STEPS_PER_UPDATE, callbacks=steps)
    boundaries = [STEPS_PER_UPDATE, 2 * STEPS_PER_UPDATE]
    assert steps.seen == {
        "start": [0],
        "total": [2 * STEPS_PER_UPDATE],
        "step": list(range(4, 2 * STEPS_PER_UPDATE + 1, 4)),
        "rollout": boundaries,
        "update": boundaries,
        "end": [2 * STEPS_PER_UPDATE],
    }


def test_steps_that_are_only_resets_are_not_counted() -> None:
    steps = Steps()
    env = vectorized([partial(CountingEnv, (1,))] * 4, "next_step")
    algo = sw.PPO(env, n_steps=8, batch_size=8)
    algo.train(32, callbacks=steps)
    assert algo.timesteps == 32
    assert steps.seen["update"] == [16, 32]


def test_an_evaluation_plays_whole_episodes_and_leaves_the_run_alone() -> None:
    first, second = small_ppo(), small_ppo()
    for algo in (first, second):
        algo.train(STEPS_PER_UPDATE)
    before = np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
    result = first.evaluate(7)
    assert (np.random.get_state()[1] == before).all()  # type: ignore[index]  # noqa: NPY002
    assert len(result.returns) == len(result.lengths) == 7
    assert result == first.evaluate(7)
    assert list(result.returns) == [float(length) for length in result.lengths]
    assert first.train(STEPS_PER_UPDATE)["loss"] == second.train(STEPS_PER_UPDATE)["loss"]
