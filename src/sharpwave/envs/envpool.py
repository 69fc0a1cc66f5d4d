"""Envpool's environments as Gymnasium vector environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from sharpwave.types import Array, Nested

__all__ = ["EnvPoolVectorEnv", "is_envpool"]


def is_envpool(env: Any) -> bool:
    """Return whether an object is a pool that `envpool.make` made."""
    if isinstance(env, type) or not all(hasattr(env, x) for x in ("send", "recv", "async_reset")):
        return False
    config = getattr(env, "config", None)
    return isinstance(config, Mapping) and "num_envs" in config


class EnvPoolVectorEnv(VectorEnv[Any, Any, Any]):
    """A pool with the interface of a vector environment.

    A pool resets an environment in the step after its episode's end (mode NEXT_STEP), describes the
    spaces of one environment, and is seeded when it is made.

    Args:
        pool: Of `envpool.make(..., env_type="gymnasium")`, with all environments in each batch.

    Raises:
        TypeError: The pool's spaces are not Gymnasium's.
        ValueError: The pool steps only some of its environments at a time.
    """

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self.num_envs = int(pool.config["num_envs"])
        batch_size = int(pool.config.get("batch_size") or self.num_envs)
        if batch_size != self.num_envs:
            raise ValueError(
                "env must step all environments at once: batch_size must be "
                f"{self.num_envs} like num_envs, got {batch_size}"
            )
        for name in ("observation_space", "action_space"):
            if not isinstance(getattr(pool, name), gym.Space):
                raise TypeError(
                    f'env must be made with env_type="gymnasium": its {name} is a '
                    f"{type(getattr(pool, name)).__module__} space"
                )
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space = pool.observation_space
        self.single_action_space = pool.action_space
        self.observation_space = batch_space(pool.observation_space, self.num_envs)
        self.action_space = batch_space(pool.action_space, self.num_envs)

    def reset(
        self,
        *,
        seed: int | None = None,  # noqa: ARG002 - a pool is seeded when it is made
        options: dict[str, Any] | None = None,
    ) -> tuple[Nested, dict[str, Any]]:
        """Reset all environments. The seed of a pool is given to `envpool.make`."""
        if options:
            raise ValueError(f"options must be empty for an envpool, got {options}")
        returned = self.pool.reset()
        has_infos = isinstance(returned, tuple) and isinstance(returned[-1], dict)
        return returned if has_infos else (returned, {})

    def step(self, actions: Any) -> tuple[Nested, Array, Array, Array, dict[str, Any]]:
        """Step all environments."""
        outcome = self.pool.step(np.asarray(actions))
        if len(outcome) == 5:
            return outcome  # type: ignore[no-any-return]
        obs, rewards, ended, infos = outcome  # the older interface says time limits in infos
        truncated = np.asarray(infos.get("TimeLimit.truncated", np.zeros_like(ended)), np.bool_)
        return obs, rewards, ended & ~truncated, truncated, infos

    def close_extras(self, **_: Any) -> None:
        """Close the pool."""
        self.pool.close()
