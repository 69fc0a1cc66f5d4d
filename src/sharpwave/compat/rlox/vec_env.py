"""rlox's native vector environments."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from sharpwave.compat.rlox.gym_vec_env import SteppedTogether
from sharpwave.envs.native import SPECS, NativeVectorEnv

__all__ = ["VecEnv"]

DEFAULT = "CartPole-v1"
BY_NAME = {name: env_id for env_id in SPECS for name in (env_id, env_id.rpartition("-v")[0])}
"""Ids, with and without their version."""


class VecEnv(SteppedTogether):
    """`n` environments that are stepped together in native code.

    Every environment is Gymnasium's of that id; other ids are refused.

    Args:
        n: Number of environments.
        seed: Of the first `reset_all`: environment i gets seed + i. 0 when not given.
        env_id: CartPole, Pendulum, Acrobot, MountainCar or MountainCarContinuous, with or without
            the version; CartPole-v1 when not given.

    Raises:
        ValueError: The id is another, or `n` is less than 1.

    Example:
        >>> env = VecEnv(2)
        >>> obs = env.reset_all()
        >>> step = env.step_all([0, 1])
        >>> step["rewards"], step["terminal_obs"], env.action_space
        (array([1., 1.]), [None, None], {'type': 'discrete', 'n': 2})
    """

    def __init__(self, n: int, seed: int | None = None, env_id: str | None = None) -> None:
        name = DEFAULT if env_id is None else env_id
        if name not in BY_NAME:
            raise ValueError(f"env_id must be one of {', '.join(SPECS)}, got {env_id!r}")
        super().__init__(NativeVectorEnv(BY_NAME[name], n), None, 0 if seed is None else seed)

    def step_all(self, actions: Any) -> dict[str, Any]:
        """Step all environments; those whose episode ends begin the next one.

        Args:
            actions: [N] integers or numbers, [N, 1] too.

        Returns:
            obs [N, ...] float32, of the next episode where one ended; rewards [N] float64;
            terminated and truncated [N] uint8; terminal_obs, a list with the last observation of
            each episode that ended and None elsewhere.

        Raises:
            ValueError: The actions do not fit.
        """
        self._begin()
        stepped = self.vector.step(self._shaped(actions))
        obs, rewards, terminated, truncated, infos = stepped
        last = infos.get("final_obs")
        return {
            "obs": obs,
            "rewards": rewards,
            "terminated": terminated.view(np.uint8),
            "truncated": truncated.view(np.uint8),
            "terminal_obs": [None] * len(obs) if last is None else last.tolist(),
        }

    @property
    def action_space(self) -> dict[str, Any]:  # type: ignore[override]
        """Of one environment: its type, and n or shape, low and high."""
        space = self.vector.single_action_space
        if isinstance(space, spaces.Discrete):
            return {"type": "discrete", "n": int(space.n)}
        assert isinstance(space, spaces.Box)
        bounds = {"low": space.low.tolist(), "high": space.high.tolist()}
        return {"type": "box", "shape": list(space.shape), **bounds}
