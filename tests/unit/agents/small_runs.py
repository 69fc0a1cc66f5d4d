"""Small runs, and an environment whose episodes are all alike."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

import sharpwave as sw
from sharpwave.types import Array

STEPS_PER_UPDATE = 128


def small_ppo(env: Any = "CartPole-v1", **options: Any) -> sw.PPO:
    """PPO that updates every 128 environment steps, in 4 minibatches per update."""
    defaults: dict[str, Any] = {
        "n_envs": 4,
        "n_steps": 32,
        "n_epochs": 2,
        "batch_size": 64,
        "hidden": (8,),
        "seed": 3,
    }
    return sw.PPO(env, **{**defaults, **options})


class Alike(gymnasium.Env[Array, int]):
    """Every episode has the same length and return, whatever is done."""

    def __init__(self, length: int = 8, reward: float = 0.5) -> None:
        self.observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)  # type: ignore[assignment]
        self.length = length
        self.reward = reward
        self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.zeros(2, np.float32), self.reward, self.steps == self.length, False, {}
