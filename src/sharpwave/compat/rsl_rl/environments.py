"""rsl_rl's environments as environments of tensors that agents of this library take."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from sharpwave.compat.rsl_rl.refusals import PAGE, refuse
from sharpwave.envs import is_tensor_env

__all__ = ["RobotEnv", "observation_sets"]

NEEDED = ("get_observations", "step", "num_envs", "num_actions", "device")
"""Attributes of an environment of rsl_rl's form."""

OURS = "policy"
"""Group of observations that come without a name."""


class RobotEnv:
    """N environments of rsl_rl's form, which say in extras what they tell elsewhere.

    Args:
        env: The environment: `get_observations`, `step`, `num_envs`, `num_actions`, `device`; or
            one of Gymnasium's form, as ManiSkill has it, which is reset here.
        device: Device of the learner, where all tensors go.

    Attributes:
        is_named: Observations come by group, as from rsl_rl 3 on.
        told: What environments asked to be logged since it was last emptied.

    Raises:
        TypeError: Something of that is missing.
        ValueError: Observations are not rows of numbers.
    """

    def __init__(self, env: Any, device: Any) -> None:
        if not hasattr(env, "get_observations") and is_tensor_env(env):
            env = _GymnasiumEnv(env)
        for name in NEEDED:
            if not hasattr(env, name):
                raise TypeError(f"env must have {name}, {type(env).__name__} has not: see {PAGE}")
        self.env = env
        self.device = torch.empty(0, device=device).device
        self.num_envs = int(env.num_envs)
        first = env.get_observations()
        self.is_named = not isinstance(first, tuple | Tensor)
        self.groups = self._groups(*first) if isinstance(first, tuple) else self._groups(first)
        for name, rows in self.groups.items():
            if rows.ndim != 2 or len(rows) != self.num_envs:
                raise ValueError(
                    f"observations {name!r} must have shape ({self.num_envs}, d), "
                    f"got {tuple(rows.shape)}"
                )
        self.single_observation_space = spaces.Dict(
            OrderedDict((name, _unbounded(rows.shape[1])) for name, rows in self.groups.items())
        )
        self.single_action_space = _unbounded(int(env.num_actions))
        self.told: list[Mapping[str, Any]] = []

    def reset(self, seed: int | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:  # noqa: ARG002
        """Observations of the episodes in flight: such environments are reset already."""
        first = self.env.get_observations()
        return (self._groups(*first) if isinstance(first, tuple) else self._groups(first)), {}

    def step(self, actions: Tensor) -> tuple[Any, Tensor, Tensor, Tensor, dict[str, Any]]:
        """Step all environments; one that ran out of time did not fail."""
        with torch.inference_mode():  # as rsl_rl does: their tensors may be of such steps already
            obs, rewards, ends, extras = self.env.step(actions.to(self.env.device))
        ended = ends.to(self.device) > 0
        cut = extras.get("time_outs")
        truncated = torch.zeros_like(ended) if cut is None else cut.to(self.device).bool()
        told = extras.get("episode", extras.get("log"))
        if told:
            self.told.append(told)
        groups = self._groups(obs, extras)
        rewards = rewards.to(self.device, torch.float32)
        return groups, rewards, ended & ~truncated, ended & truncated, {}

    def close(self) -> None:
        """Nothing: whoever made the environments closes them."""

    def _groups(self, obs: Any, extras: Mapping[str, Any] | None = None) -> dict[str, Tensor]:
        """Observations by group, on the device of the learner."""
        if isinstance(obs, Tensor):
            others = (extras or {}).get("observations") or {}
            named = {OURS: obs, **{k: x for k, x in others.items() if x is not None and k != OURS}}
        else:
            named = dict(obs.items())
        return {k: x.to(self.device, torch.float32) for k, x in named.items() if _is_rows(x)}


class _GymnasiumEnv:
    """An environment of tensors with Gymnasium's five results, in rsl_rl's form.

    Args:
        env: The environment.
    """

    def __init__(self, env: Any) -> None:
        inner = getattr(env, "unwrapped", env)
        space = inner.single_action_space
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            raise TypeError(f"env must have actions of a Box of one axis, got {space}: see {PAGE}")
        self.env = env
        self.num_envs = int(inner.num_envs)
        self.num_actions = int(space.shape[0])
        self.device = torch.empty(0, device=inner.device).device
        self._bounds = [torch.as_tensor(x, device=self.device) for x in (space.low, space.high)]
        self._obs, _ = env.reset()

    def get_observations(self) -> Any:
        """Observations of the episodes in flight."""
        return self._obs

    def step(self, actions: Tensor) -> tuple[Any, Tensor, Tensor, dict[str, Any]]:
        """Step all environments, with actions within their bounds."""
        taken = torch.clamp(actions, *self._bounds)
        self._obs, rewards, terminated, truncated, _ = self.env.step(taken)
        return self._obs, rewards, terminated | truncated, {"time_outs": truncated}


def observation_sets(
    env: RobotEnv, given: Mapping[str, list[str]], wanted: tuple[str, ...]
) -> dict[str, list[str]]:
    """The groups of each set that networks look at.

    A set that is not given is the group of its name, or else the group "policy". What looks at
    "actor" or "student" was called "policy" until rsl_rl 3.

    Args:
        env: The environments.
        given: `obs_groups` of the configuration.
        wanted: Names of the sets.

    Raises:
        ValueError: A group is not there.
    """
    known = list(env.groups)
    sets = {}
    for name in wanted:
        names = given.get(name)
        if names is None and name in ("actor", "student"):
            names = given.get(OURS)
        if names is None:
            names = [name] if name in known else [OURS]
        for group in names:
            if group not in known:
                raise refuse(f"obs_groups[{name!r}]", names, f"some of {known}")
        if not names:
            raise refuse(f"obs_groups[{name!r}]", names, f"at least one of {known}")
        sets[name] = list(names)
    return sets


def _unbounded(size: int) -> spaces.Box:
    return spaces.Box(-np.inf, np.inf, (size,), np.float32)


def _is_rows(x: Any) -> bool:
    return isinstance(x, Tensor)
