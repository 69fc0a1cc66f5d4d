"""Environments that live on a device and step tensors, as the simulators of robots do."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from sharpwave.core.lazy import torch
from sharpwave.core.tree import map_leaves
from sharpwave.envs.tensor_spaces import entries_of, spaces_of
from sharpwave.types import Nested

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TensorStep", "TensorVectorEnv", "is_tensor_env"]

FINAL_OBS = ("final_obs", "final_observation")
"""Names in infos of the last observations of episodes, [N, ...], read where one ended."""
MASK = "action_mask"
"""Name in infos of the mask of valid actions, [N, n]."""


class TensorStep(NamedTuple):
    """One step of every environment, as tensors on a device."""

    obs: Any
    """To act on next, [N, ...]."""
    rewards: Tensor
    """[N] float."""
    terminated: Tensor
    """[N] bool."""
    truncated: Tensor
    """[N] bool."""
    final_obs: Any
    """[N, ...], what the actions led to where an episode ended; None where nobody knows."""
    infos: dict[str, Any]


def is_tensor_env(env: Any) -> bool:
    """Return whether an object is a vector environment on a device, by `num_envs` and `device`.

    A `TensorVectorEnv`, which gives arrays too, does not count.
    """
    if isinstance(env, str | type | TensorVectorEnv) or not hasattr(env, "step"):
        return False
    inner = getattr(env, "unwrapped", env)
    return hasattr(inner, "num_envs") and hasattr(inner, "device")


class TensorVectorEnv(VectorEnv[Any, Any, Any]):
    """N environments that step tensors, as a vector environment of arrays and of tensors.

    `reset_tensors` and `step_tensors` never leave the device. `reset` and `step` are those of
    Gymnasium, with arrays, for whatever works with these.

    The environment has `num_envs`, `device`, `single_observation_space`, `single_action_space`,
    `reset(seed=...) -> (obs, infos)` and `step(actions) -> (obs, rewards, terminated, truncated,
    infos)`, all tensors [N, ...], observations nested in dicts if need be. It starts a new episode
    in the step that ends one. The last observations of the old ones may be in
    `infos["final_obs"]`; where they are not, the observations before them stand for them.

    One for rsl_rl will do as well: `step` gives `(obs, rewards, dones, extras)`, where an episode
    was truncated if `extras["time_outs"]` says so, `reset` may take no seed and give observations
    alone, and `num_actions` and `get_observations()` may stand for the spaces.

    Args:
        env: Such an environment: one of Isaac Lab, for example.

    Attributes:
        device: Device of its tensors.
        capturable: True if the environment says that a step may be recorded in a CUDA graph: it
            keeps its state in the same memory and waits for nothing.

    Raises:
        TypeError: Something of that is missing.
    """

    def __init__(self, env: Any) -> None:
        inner = getattr(env, "unwrapped", env)
        for name in ("num_envs", "device"):
            if not hasattr(inner, name):
                raise TypeError(f"env must have {name}, {type(inner).__name__} has not")
        self.env = env
        self.spec = getattr(env, "spec", None)
        self.device = torch.empty(0, device=inner.device).device  # with its number
        self.num_envs = int(inner.num_envs)
        self.capturable = bool(getattr(inner, "capturable", False))
        self.metadata = {
            **(getattr(env, "metadata", None) or {}),
            "autoreset_mode": AutoresetMode.SAME_STEP,
        }
        self.render_mode = getattr(env, "render_mode", None)
        self.single_observation_space, self.single_action_space = spaces_of(env)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._obs: Any = None
        if hasattr(inner, "get_state") and hasattr(inner, "set_state"):
            # What runs ask for to continue within an episode.
            self.get_state = lambda: map_leaves(_array, inner.get_state())
            self.set_state = inner.set_state

    @property
    def unwrapped(self) -> TensorVectorEnv:
        """This: what lies below does not give arrays."""
        return self

    def reset_tensors(self, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Start new episodes everywhere: observations [N, ...] and infos."""
        obs, infos = self._reset(seed)
        self._obs = self._kept(obs)
        return self._obs, _with_own_masks(infos)

    def step_tensors(self, actions: Any) -> TensorStep:
        """Step all environments with actions [N, ...] on the device."""
        obs, rewards, terminated, truncated, infos = self._split(self.env.step(actions))
        final_obs = next((infos[name] for name in FINAL_OBS if name in infos), None)
        self._obs = self._kept(obs)
        return TensorStep(
            self._obs,
            torch.as_tensor(rewards, device=self.device),
            torch.as_tensor(terminated, device=self.device).bool(),
            torch.as_tensor(truncated, device=self.device).bool(),
            None if final_obs is None else self._known(final_obs),
            _with_own_masks(infos),
        )

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002 - it resets all, always
    ) -> tuple[Nested, dict[str, Any]]:
        """Start new episodes everywhere; arrays."""
        if seed is not None and not isinstance(seed, int | np.integer):
            raise TypeError(f"seed must be one number for all environments, got {seed!r}")
        obs, infos = self.reset_tensors(None if seed is None else int(seed))
        return _arrays(obs), _masks(infos)

    def step(self, actions: Any) -> tuple[Nested, Any, Any, Any, dict[str, Any]]:
        """Step all environments; arrays."""
        before = self._obs
        step = self.step_tensors(torch.as_tensor(np.asarray(actions)).to(self.device))
        ended = _arrays(step.terminated | step.truncated)
        infos = _masks(step.infos)
        if ended.any():
            final_obs = step.final_obs
            if final_obs is None:
                final_obs = step.obs if before is None else before
            infos.update({"final_obs": _arrays(final_obs), "_final_obs": ended})
        flags = _arrays(step.terminated), _arrays(step.truncated)
        return _arrays(step.obs), _arrays(step.rewards), *flags, infos

    def render(self) -> Any:
        """The rendered frames of the environment."""
        return self.env.render()

    def close(self, **_: Any) -> None:
        """Close the environment, where it can be."""
        if hasattr(self.env, "close"):
            self.env.close()

    def _reset(self, seed: int | None) -> tuple[Any, dict[str, Any]]:
        """Observations and infos of a reset, of environments that may have no seeds."""
        if not hasattr(self.env, "reset"):
            given = self.env.get_observations()
        elif "seed" in (names := inspect.signature(self.env.reset).parameters) or any(
            one.kind is inspect.Parameter.VAR_KEYWORD for one in names.values()
        ):
            given = self.env.reset(seed=seed)
        else:
            if seed is not None and callable(getattr(self.env, "seed", None)):
                self.env.seed(seed)
            given = self.env.reset()
        return given if isinstance(given, tuple) else (given, {})

    def _split(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """A step of five parts; of four where time limits are told apart by `time_outs`."""
        if len(given) != 4:
            return given
        obs, rewards, dones, extras = given
        ended = torch.as_tensor(dones, device=self.device) != 0
        limits = extras.get("time_outs")
        if limits is None:
            return obs, rewards, ended, torch.zeros_like(ended), extras
        truncated = ended & (torch.as_tensor(limits, device=self.device) != 0)
        return obs, rewards, ended & ~truncated, truncated, extras

    def _kept(self, obs: Any) -> Any:
        """Observations that last beyond the next step, for which it may use its memory again."""
        return map_leaves(lambda leaf: leaf.clone(), self._known(obs))

    def _known(self, obs: Any) -> Any:
        """The observations of the space; a simulator may give more, for critics or loggers."""
        obs, keys = entries_of(obs), getattr(self.single_observation_space, "spaces", None)
        if isinstance(obs, dict) and isinstance(keys, dict):
            return {name: obs[name] for name in keys}
        return obs


def _with_own_masks(infos: dict[str, Any]) -> dict[str, Any]:
    if MASK not in infos:
        return infos
    return {**infos, MASK: infos[MASK].clone()}


def _arrays(tree: Any) -> Any:
    return map_leaves(_array, tree)


def _masks(infos: dict[str, Any]) -> dict[str, Any]:
    return {MASK: _array(infos[MASK])} if MASK in infos else {}


def _array(leaf: Any) -> Any:
    return leaf.detach().cpu().numpy().copy() if isinstance(leaf, torch.Tensor) else leaf
