"""Validation of unrolls from other machines: names, dtypes, shapes, ranges and finite values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

from sharpwave.collect import Rollout
from sharpwave.core.finite import all_finite
from sharpwave.core.tree import leaves
from sharpwave.distributed.fleet import Unroll
from sharpwave.envs.masks import choices
from sharpwave.errors import WireError
from sharpwave.types import Array, Nested

__all__ = ["UnrollSchema"]

_FLOATS = ("log_probs", "rewards")
_AXES = ("step", "environment")
_FLAGS = ("terminated", "truncated", "starts", "valid")


class UnrollSchema:
    """Names, dtypes, shapes and ranges of the columns of an unroll.

    Args:
        observation_space: Observation space of one environment.
        action_space: Action space of one environment.
        n_steps: T, steps of an unroll.
        n_envs: N, environments of an actor.
        memory: Shape of the recurrent state before the first step; None without one.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        n_steps: int,
        n_envs: int,
        *,
        memory: tuple[int, ...] | None = None,
    ) -> None:
        self._steps, self._memory = (n_steps, n_envs), memory
        self._obs = dict(_leaves(observation_space))
        self._actions = action_space
        is_masked = not isinstance(action_space, spaces.Box)
        self._choices = choices(action_space) if is_masked else []
        of_step = sum(dtype.itemsize * math.prod(shape) for dtype, shape, _ in self._obs.values())
        of_step += 8 * math.prod(action_space.shape or ()) + sum(self._choices) + 64
        # Every step may end an episode, whose last observation travels too.
        self.max_bytes = 4 * n_steps * n_envs * of_step + 4 * math.prod(memory or ()) + 2**20
        """More than any unroll has."""

    def check(self, unroll: Unroll) -> None:
        """Validate an unroll against the schema.

        Raises:
            WireError: Something differs, or is NaN or inf; the actor, the environment and the step
                are named.
        """
        rollout, steps = unroll.rollout, self._steps
        who = f"actor {unroll.actor}:"
        for name in (*_FLOATS, *_FLAGS):
            dtype = np.dtype(np.float32 if name in _FLOATS else np.bool_)
            _check_array(f"{who} {name}", getattr(rollout, name), dtype, steps)
        self._check_obs(f"{who} obs", rollout.obs, steps)
        if rollout.last_obs is None:
            raise WireError(f"{who} an unroll must have last_obs")
        self._check_obs(f"{who} last_obs", rollout.last_obs, steps[1:], ("environment",))
        self._check_ends(who, rollout)
        self._check_memory(who, rollout.state)
        self._check_actions(f"{who} actions", rollout.actions)
        self._check_masks(f"{who} masks", rollout.masks)
        if rollout.extra is not None:
            raise WireError(f"{who} extra must be None, got {sorted(rollout.extra)}")
        _check_episodes(who, unroll)

    def _check_obs(
        self, what: str, obs: Nested, leading: tuple[int, ...], axes: tuple[str, ...] = _AXES
    ) -> None:
        found = dict(leaves(obs))
        if found.keys() != self._obs.keys():
            raise WireError(f"{what} must have the leaves {list(self._obs)}, got {list(found)}")
        for path, (dtype, shape, within) in self._obs.items():
            name = f"{what}.{path}" if path else what
            _check_array(name, found[path], dtype, (*leading, *shape), axes)
            if within is not None:
                _check_range(name, found[path], *within)

    def _check_ends(self, who: str, rollout: Rollout) -> None:
        if rollout.final_obs is not None:
            n_ended = int(np.count_nonzero(rollout.terminated | rollout.truncated))
            self._check_obs(f"{who} final_obs", rollout.final_obs, (n_ended,), ("episode",))
            return
        # Where a row is spent on the reset, it has the last observation; after the last row
        # `last_obs` is.
        cut = rollout.truncated & ~rollout.terminated
        missing = np.logical_and(cut[:-1], rollout.valid[1:])
        if missing.any():
            raise WireError(
                f"{who} final_obs must have what a truncated episode led to, got None for that at "
                f"{_first(missing)}"
            )

    def _check_actions(self, what: str, actions: Any) -> None:
        space, steps = self._actions, self._steps
        if isinstance(space, spaces.Box):
            _check_array(what, actions, np.dtype(np.float32), (*steps, *space.shape))
            return
        most: Any = 1
        if isinstance(space, spaces.Discrete):
            most = space.n - 1
        elif isinstance(space, spaces.MultiDiscrete):
            most = space.nvec - 1
        shape = (*steps, *(space.shape or ()))
        if not isinstance(actions, np.ndarray) or actions.dtype.kind not in "iu":
            raise WireError(f"{what} must be integers, got {_form(actions)}")
        if actions.shape != shape:
            raise WireError(f"{what} must have shape {shape}, got {actions.shape}")
        _check_range(what, actions, 0, most)

    def _check_memory(self, who: str, state: Any) -> None:
        if self._memory is None:
            if state is not None:
                raise WireError(f"{who} state must be None, got {_form(state)}")
            return
        _check_array(f"{who} state", state, np.dtype(np.float32), self._memory, ())

    def _check_masks(self, what: str, masks: Any) -> None:
        if masks is None:
            return
        if not self._choices:
            raise WireError(f"{what} must be None, got {_form(masks)}")
        _check_array(what, masks, np.dtype(np.bool_), (*self._steps, sum(self._choices)))
        if isinstance(self._actions, spaces.MultiBinary):
            return  # every bit may be one that must not be set
        starts = np.cumsum([0, *self._choices[:-1]])
        forbidden = ~np.logical_or.reduceat(masks, starts, axis=-1)
        if forbidden.any():
            raise WireError(f"{what} must allow an action, got none at {_first(forbidden)}")


def _leaves(
    space: spaces.Space[Any], path: str = ""
) -> Iterator[tuple[str, tuple[Any, Any, tuple[Any, Any] | None]]]:
    """Dtype and shape of each leaf, as collectors store it, and the range of indices."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, part in parts:
            yield from _leaves(part, f"{path}.{key}" if path else str(key))
    else:
        dtype = np.dtype(space.dtype)
        stored = np.dtype(np.float32) if dtype.kind == "f" else dtype
        yield path, (stored, space.shape or (), _range(space))


def _range(space: spaces.Space[Any]) -> tuple[Any, Any] | None:
    """Lowest and highest of indices, which learners take as one-hot; None for other numbers."""
    if isinstance(space, spaces.Discrete):
        return int(space.start), int(space.start + space.n - 1)
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return (0, 1) if isinstance(space, spaces.MultiBinary) else None


def _check_episodes(who: str, unroll: Unroll) -> None:
    returns, lengths, successes = unroll.episode_returns, unroll.episode_lengths, unroll.successes
    n_ended = int(np.count_nonzero(unroll.rollout.terminated | unroll.rollout.truncated))
    for name, column, kind in (("returns", returns, "f"), ("lengths", lengths, "i")):
        if column.shape != (n_ended,) or column.dtype.kind != kind:
            raise WireError(f"{who} episode {name} must be {n_ended} numbers, got {_form(column)}")
        _check_finite(f"{who} episode {name}", column, ("episode",))
    if successes.ndim != 1 or len(successes) > n_ended or successes.dtype.kind != "f":
        raise WireError(f"{who} successes must be at most {n_ended}, got {_form(successes)}")
    _check_finite(f"{who} successes", successes, ("episode",))


def _check_array(
    what: str,
    array: Any,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    axes: tuple[str, ...] = _AXES,
) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
        raise WireError(f"{what} must be {dtype} {shape}, got {_form(array)}")
    _check_finite(what, array, axes)


def _check_finite(what: str, array: Array, axes: tuple[str, ...] = _AXES) -> None:
    if array.dtype.kind != "f" or all_finite(array):
        return
    wrong = ~np.isfinite(array)
    raise WireError(f"{what} must be finite, got {array[wrong][0]} at {_first(wrong, axes)}")


def _check_range(what: str, array: Array, low: Any, high: Any) -> None:
    if (array < low).any() or (array > high).any():
        raise WireError(f"{what} must be from {low} to {high}, got {array.min()}..{array.max()}")


def _first(flags: Array, axes: tuple[str, ...] = _AXES) -> str:
    """The place of the first flag that is set."""
    place = np.argwhere(flags)[0].tolist()
    return ", ".join(f"{axis} {index}" for axis, index in zip(axes, place, strict=False))


def _form(array: Any) -> str:
    is_array = isinstance(array, np.ndarray)
    return f"{array.dtype} {array.shape}" if is_array else type(array).__name__
