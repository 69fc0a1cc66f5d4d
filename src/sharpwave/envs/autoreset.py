"""Ends of episodes in vector environments of every autoreset mode, read in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sharpwave.core.tree import map_leaves
from sharpwave.types import Array, Flags, Nested

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv

__all__ = ["MODES", "Step", "Stepper", "autoreset_mode", "merged_infos", "with_final_obs"]

MODES = ("next_step", "same_step", "disabled")


class Step(NamedTuple):
    """One step of every environment, in the same form whatever the autoreset mode."""

    obs: Nested
    """Observations to act on next, [N, ...]."""
    rewards: Array
    """[N], floating point."""
    terminated: Flags
    """[N]."""
    truncated: Flags
    """[N]."""
    next_obs: Nested
    """Observations that the actions led to, [N, ...]: the true last one where an episode ended.
    The same object as `obs` where they do not differ."""
    valid: Flags | None
    """[N], mask of valid rows: False where a row was only a reset; None when all are steps."""
    infos: dict[str, Any]
    """Infos of `obs`; at the end of an episode the last step's are in `infos["final_info"]`, except
    in mode next_step, where they come as they are."""

    @property
    def raw_rewards(self) -> Array:
        """[N], as the environment gave them, before any normalization."""
        rewards: Array = self.infos.get("raw_rewards", self.rewards)
        return rewards


class Stepper:
    """Steps a vector environment and says what each step was, in every autoreset mode.

    - next_step: the step after an end is a reset that ignores its action: `valid` is False there.
    - same_step: the observation returned with an end is already the next episode's first; the true
      last one comes from `infos["final_obs"]`.
    - disabled: environments whose episode ended are reset here.

    Args:
        env: The vector environment.

    Attributes:
        mode: "next_step", "same_step" or "disabled".
        ended: [N] bool, where the last step ended an episode. Part of the state to save and put
            back when a run is resumed without a reset.

    Example:
        >>> import gymnasium as gym
        >>> env = gym.make_vec("CartPole-v1", num_envs=2)
        >>> stepper = Stepper(env)
        >>> obs, infos = stepper.reset(seed=0)
        >>> step = stepper.step(env.action_space.sample())
        >>> step.obs.shape, step.rewards.tolist(), step.valid
        ((2, 4), [1.0, 1.0], None)
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self.env = env
        self.mode = autoreset_mode(env)
        if self.mode not in MODES:
            raise ValueError(f"env must have an autoreset mode of {MODES}, got {self.mode!r}")
        self.ended: Flags = np.zeros(env.num_envs, np.bool_)
        # Gymnasium's environments hand out their own arrays when made with copy=False.
        self._reuses_arrays = getattr(env.unwrapped, "copy", True) is False

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Nested, dict[str, Any]]:
        """Reset all environments; with a seed, environment i gets seed + i."""
        more = {} if options is None else {"options": options}
        obs, infos = self.env.reset(seed=seed, **more)
        self.ended = np.zeros(self.env.num_envs, np.bool_)
        return self._own(obs), infos

    def step(self, actions: Any) -> Step:
        """Step all environments.

        Args:
            actions: As the environment takes them, [N, ...].

        Raises:
            ValueError: An episode ended in mode same_step and `infos` lacks its last observation.
        """
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        obs = self._own(obs)
        rewards = _floating(rewards)
        terminated = np.asarray(terminated, np.bool_)
        truncated = np.asarray(truncated, np.bool_)
        ended = terminated | truncated
        next_obs, valid = obs, None
        if self.mode == "next_step":
            if np.count_nonzero(self.ended):  # several times faster than any()
                valid = ~self.ended
        elif np.count_nonzero(ended):
            if self.mode == "same_step":
                next_obs = with_final_obs(obs, ended, infos)
            else:
                obs, infos = self._reset_ended(obs, infos, ended)
        self.ended = ended
        return Step(obs, rewards, terminated, truncated, next_obs, valid, infos)

    def _reset_ended(
        self, obs: Nested, infos: dict[str, Any], ended: Flags
    ) -> tuple[Nested, dict[str, Any]]:
        """The observations and infos with those of the reset environments in their rows."""
        reset_obs, reset_infos = self.env.reset(options={"reset_mask": ended.copy()})
        merged = map_leaves(lambda old, new: _with_rows(old, new, ended), obs, reset_obs)
        return merged, {
            **merged_infos(infos, reset_infos, ended),
            "final_info": infos,
            "_final_info": ended,
        }

    def _own(self, obs: Nested) -> Nested:
        return map_leaves(np.array, obs) if self._reuses_arrays else obs


def autoreset_mode(env: Any) -> str:
    """The mode a vector environment declares, next_step where it declares none."""
    if env is None:
        raise TypeError("env or mode must be given")
    name = str(getattr(declared := _declared_mode(env), "name", declared)).lower()
    return name.replace("-", "_")


def _declared_mode(env: Any) -> Any:
    # What an instance says of itself comes first: a class's metadata may be shared by all vector
    # environments of the process and say what the one made last does.
    layer = env
    while layer is not None:
        own = getattr(layer, "__dict__", {})
        metadata = own.get("metadata") or own.get("_metadata") or {}
        declared = own.get("autoreset_mode") or metadata.get("autoreset_mode")
        if declared is not None:
            return declared
        layer = own.get("env")
    return (getattr(env, "metadata", None) or {}).get("autoreset_mode") or "next_step"


def with_final_obs(obs: Nested, ended: Flags, infos: dict[str, Any] | None) -> Nested:
    """A copy of the observations with the true last ones where episodes ended.

    Args:
        obs: Observations of a vector environment of mode same_step, [N, ...].
        ended: [N].
        infos: Returned with them. `infos["final_obs"]` is an array of N observations (or None), a
            dict or tuple of arrays, or one array for all environments.

    Raises:
        ValueError: `infos` has no last observation of an environment whose episode ended.
    """
    final_obs = (infos or {}).get("final_obs")
    if final_obs is None:
        raise ValueError('infos must have "final_obs" where episodes end in mode same_step')
    return _with_final(obs, np.flatnonzero(ended), final_obs)


def _with_final(obs: Nested, rows: npt.NDArray[np.intp], final_obs: Any) -> Nested:
    if isinstance(obs, dict):
        return {key: _with_final(obs[key], rows, _part(final_obs, key)) for key in obs}
    if isinstance(obs, tuple):
        return tuple(_with_final(obs[i], rows, _part(final_obs, i)) for i in range(len(obs)))
    fixed = np.array(obs)
    for row in rows:
        if final_obs[row] is None:
            raise ValueError(f'infos must have the "final_obs" of environment {row}, got None')
        fixed[row] = final_obs[row]
    return fixed


def _part(final_obs: Any, key: str | int) -> Any:
    """One entry of nested last observations: a tree of arrays, or an array of trees."""
    if isinstance(final_obs, dict | tuple):
        return final_obs[key]  # type: ignore[index]
    return [None if one is None else one[key] for one in final_obs]


def _with_rows(old: Any, new: Any, rows: Flags) -> Array:
    merged = np.array(old)
    merged[rows] = np.asarray(new)[rows]
    return merged


def merged_infos(old: dict[str, Any], new: dict[str, Any], rows: Flags) -> dict[str, Any]:
    """Infos of a step with those of a reset in some rows.

    An entry with a mask (`_name`) belongs to single environments, any other to the whole step.
    """
    names = {**old, **new}
    none = np.zeros(len(rows), np.bool_)
    merged: dict[str, Any] = {}
    for name in names:
        mask_name = f"_{name}"
        if mask_name in names:
            mask = np.where(rows, new.get(mask_name, none), old.get(mask_name, none))
            if mask.any():
                merged[name] = _merged_entry(old.get(name), new.get(name), rows)
                merged[mask_name] = mask
        elif not (name.startswith("_") and name[1:] in names):
            merged[name] = old.get(name, new.get(name))
    return merged


def _merged_entry(old: Any, new: Any, rows: Flags) -> Any:
    if isinstance(old, dict) or isinstance(new, dict):
        return merged_infos(old or {}, new or {}, rows)
    if old is None:
        return new
    return old if new is None else _with_rows(old, new, rows)


def _floating(rewards: Any) -> Array:
    array: Array = np.asarray(rewards)
    return array if array.dtype.kind == "f" else array.astype(np.float64)
