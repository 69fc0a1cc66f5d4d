"""The rows of one agent in the arrays of its group, and what may be written there."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from sharpwave.envs.batching import fitting
from sharpwave.envs.multi.form import MASK, GroupArrays, GroupForm
from sharpwave.envs.spaces import leaf_spaces
from sharpwave.types import Array, Nested

__all__ = ["Seat"]


class Seat:
    """The rows of one agent of one environment.

    Args:
        key: The environment's own name of the agent.
        group: Its group.
        row: Its place there.
        index: The environment's.
        arrays: Of the group.

    Attributes:
        agent: Our name of it.
    """

    def __init__(
        self, key: Any, group: GroupForm, row: int, index: int, arrays: GroupArrays
    ) -> None:
        self.key = key
        self.agent = group.agents[row]
        self.row = row
        self.index = index
        self.arrays = arrays
        # [G] of this environment: a number is written faster there than in [N, G].
        self.action = arrays.actions[index]
        self.reward = arrays.rewards[index]
        self.terminated = arrays.terminated[index]
        self.truncated = arrays.truncated[index]
        self.alive = arrays.alive[index]
        self._is_number = group.action_space.shape == ()
        self._next_obs = _places(group, arrays.next_obs, (index, row))
        self._obs = _places(group, arrays.obs, (index, row))
        self._mask = None if arrays.masks is None else arrays.masks[index, row]
        self._has_mask = group.has_mask
        # Of bits that may be set, none need be.
        is_bits = isinstance(group.action_space, spaces.MultiBinary)
        self._choices = None if is_bits else group.choices

    def chosen(self) -> Any:
        """The action in the block, in memory of its own."""
        action = self.action[self.row]
        return action if self._is_number else action.copy()

    def write(self, obs: Any, *, is_next: bool) -> None:
        """Put an observation where it belongs: what actions led to, or a first one.

        Raises:
            ValueError: It does not fit the space.
        """
        for path, memory, limits in self._next_obs if is_next else self._obs:
            value = obs
            try:
                for entry in path:
                    value = value[entry]
            except (KeyError, IndexError, TypeError) as error:
                raise ValueError(
                    f"the observation of {self.agent!r} must have an entry {entry!r}"
                ) from error
            try:
                fits = value.shape == memory.shape and value.dtype == memory.dtype
            except AttributeError:
                fits = False
            if not fits:
                name = f"the observation of {self.agent!r}"
                value = fitting(value, memory.shape, memory.dtype, name)
            if limits is not None and not ((value >= limits[0]) & (value < limits[1])).all():
                raise ValueError(
                    f"the observation of {self.agent!r} must be from {limits[0]} to below "
                    f"{limits[1]}, got {value}"
                )
            memory[...] = value

    def clear(self) -> None:
        """Zeros to act on next, as the agent is gone."""
        for _, memory, _ in self._obs:
            memory[...] = 0

    def write_mask(self, obs: Any, info: Any) -> bool:
        """Put the mask of the next action where it belongs; False where there is none.

        Raises:
            ValueError: It has another shape, or allows nothing.
        """
        if self._mask is None:
            return False
        source = obs if self._has_mask else info
        given = source.get(MASK) if source else None
        if given is None:
            return False
        mask = np.asarray(given, np.bool_)
        if mask.shape != self._mask.shape:
            raise ValueError(
                f"the action mask of {self.agent!r} must have shape {self._mask.shape}, "
                f"got {mask.shape}"
            )
        if self._choices is not None and not _allows(mask, self._choices):
            raise ValueError(f"the action mask of {self.agent!r} must allow an action, got {mask}")
        self._mask[...] = mask
        return True


def _allows(mask: Array, choices: list[int]) -> bool:
    if len(choices) == 1:
        return bool(mask.any())
    starts = np.cumsum([0, *choices[:-1]])
    return bool(np.logical_or.reduceat(mask, starts).all())


Place = tuple[tuple[Any, ...], Array, Any]
"""The way to a leaf of an observation, its memory, and the limits of its integers."""


def _places(group: GroupForm, arrays: Nested, at: tuple[int, int]) -> list[Place]:
    found: list[Place] = []

    def walk(space: Nested, memory: Nested, path: tuple[Any, ...]) -> None:
        if isinstance(space, dict | tuple):
            for entry in space if isinstance(space, dict) else range(len(space)):
                walk(space[entry], memory[entry], (*path, entry))
        else:
            found.append((path, memory[(*at, ...)], _limits(space)))

    walk(leaf_spaces(group.observation_space), arrays, group.path)
    return found


def _limits(space: Any) -> Any:
    if isinstance(space, spaces.Discrete):
        return space.start, space.start + space.n
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec
    return None
