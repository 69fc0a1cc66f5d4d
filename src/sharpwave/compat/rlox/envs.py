"""One environment with rlox's `reset` and `step`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from sharpwave.types import Array

__all__ = ["CartPole", "GymEnv"]


class GymEnv:
    """A Gymnasium environment whose steps are dicts.

    Args:
        env: The environment.

    Example:
        >>> env = GymEnv(gym.make("CartPole-v1"))
        >>> obs = env.reset(seed=0)
        >>> env.step(1)["reward"]
        1.0
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self.env = env

    def reset(self, seed: int | None = None) -> Any:
        """Start an episode; its first observation."""
        return self.env.reset(seed=seed)[0]

    def step(self, action: Any) -> dict[str, Any]:
        """Step; obs, reward, terminated and truncated."""
        obs, reward, terminated, truncated, _ = self.env.step(action)
        return {
            "obs": obs,
            "reward": float(reward),
            "terminated": bool(terminated),
            "truncated": bool(truncated),
        }


class CartPole(GymEnv):
    """Gymnasium's CartPole-v1, which has begun its first episode.

    Args:
        seed: Of that episode.

    Example:
        >>> env = CartPole(seed=42)
        >>> env.reset().shape, env.step(1)["terminated"]
        ((4,), False)
    """

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self._steps = 0
        self._obs: Array = np.zeros(4, np.float32)
        self.reset(seed)

    def reset(self, seed: int | None = None) -> Array:
        """Start an episode; its first observation, [4] float32."""
        self._steps, self._ended = 0, False
        self._obs = super().reset(seed)
        return self._obs

    def step(self, action: int) -> dict[str, Any]:
        """Push left (0) or right (1); obs, reward, terminated and truncated.

        Raises:
            RuntimeError: The episode has ended.
            ValueError: There is no such action.
        """
        if self._ended:
            raise RuntimeError("the episode has ended: reset() begins the next")
        if action not in (0, 1):
            raise ValueError(f"action must be 0 or 1, got {action!r}")
        step = super().step(int(action))
        self._steps, self._obs = self._steps + 1, step["obs"]
        self._ended = step["terminated"] or step["truncated"]
        return step

    def render(self) -> str:
        """The state in a line of text."""
        position, _, angle, _ = self._obs
        return f"CartPole | step={self._steps} | x={position:.4f} theta={angle:.4f}"
