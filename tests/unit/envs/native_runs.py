"""Short runs of native environments."""

from __future__ import annotations

from typing import Any

from sharpwave.envs import NativeVectorEnv
from sharpwave.envs.native import SPECS
from sharpwave.types import Array

IDS = sorted(SPECS)
MODES = ["same_step", "next_step", "disabled"]


def sampled(env: Any, n_steps: int, seed: int = 0) -> list[Array]:
    """Actions for so many steps."""
    env.action_space.seed(seed)
    return [env.action_space.sample() for _ in range(n_steps)]


def played(env: Any, actions: list[Array]) -> list[Any]:
    """The results of each step."""
    return [env.step(action) for action in actions]


def short_episodes(n: int, mode: str) -> NativeVectorEnv:
    """Poles whose episodes take 5 steps."""
    return NativeVectorEnv("CartPole-v1", n, autoreset_mode=mode, max_episode_steps=5)
