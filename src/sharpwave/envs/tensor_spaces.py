"""Spaces of environments that step tensors and say numbers of actions in place of spaces."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

__all__ = ["entries_of", "spaces_of"]


def spaces_of(env: Any) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    """Observation and action space of one environment.

    They are `single_observation_space` and `single_action_space` where there are any; otherwise
    unbounded boxes, of the shapes of `get_observations()` and of `num_actions`.

    Raises:
        TypeError: There is neither.
    """
    inner = getattr(env, "unwrapped", env)
    if hasattr(inner, "single_observation_space") and hasattr(inner, "single_action_space"):
        return inner.single_observation_space, inner.single_action_space
    if not (hasattr(env, "num_actions") and hasattr(env, "get_observations")):
        missing = next(
            name
            for name in ("single_observation_space", "single_action_space")
            if not hasattr(inner, name)
        )
        raise TypeError(f"env must have {missing}, {type(inner).__name__} has not")
    obs = env.get_observations()
    obs = obs[0] if isinstance(obs, tuple) else obs
    actions = spaces.Box(-np.inf, np.inf, (int(env.num_actions),), np.float32)
    return _space_of(obs), actions


def entries_of(obs: Any) -> Any:
    """Nested observations as dicts, whatever mapping the environment has for them."""
    if not hasattr(obs, "keys"):
        return obs
    return {name: entries_of(obs[name]) for name in obs.keys()}  # noqa: SIM118 - a TensorDict


def _space_of(obs: Any) -> spaces.Space[Any]:
    if hasattr(obs, "keys"):
        return spaces.Dict([(name, _space_of(one)) for name, one in entries_of(obs).items()])
    shape = tuple(obs.shape[1:])
    if str(obs.dtype) == "torch.uint8":
        return spaces.Box(0, 255, shape, np.uint8)
    return spaces.Box(-np.inf, np.inf, shape, np.float32)
