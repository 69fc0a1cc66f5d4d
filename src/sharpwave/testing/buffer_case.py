"""Steps whose every entry says which one it is, and buffers that hold some of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from sharpwave.buffers import ReplayBuffer
from sharpwave.core.tree import leaves, map_leaves
from sharpwave.envs import make_vec_env
from sharpwave.loops.foreign_buffer import _takes_seed
from sharpwave.testing.bits import array_of
from sharpwave.testing.contract import expect
from sharpwave.types import Array, Nested

__all__ = ["CAPACITY", "BufferCase", "Row", "differing_rows"]

CAPACITY = 16
EPISODE = 5
"""Steps of an episode; no divisor of the capacity, so that ends fall on every slot."""


class Row(NamedTuple):
    """Arguments of `push`, in its order."""

    obs: Nested
    action: Any
    reward: float
    terminated: bool
    truncated: bool
    next_obs: Nested


class BufferCase:
    """A way to make buffers, and steps of an environment to put into them.

    Args:
        make: From a capacity to an empty buffer.
        env: The environment whose steps they hold.
    """

    def __init__(self, make: Callable[[int], Any], env: Any) -> None:
        self.make_any = make
        self.env = env
        self._made: list[Any] = []

    def make(self, capacity: int = CAPACITY) -> Any:
        """An empty buffer, which is closed with the rule."""
        buffer = self.make_any(capacity)
        self._made.append(buffer)
        return buffer

    def release(self) -> None:
        """Close the buffers that can be closed."""
        while self._made:
            close = getattr(self._made.pop(), "close", None)
            if callable(close):
                close()

    def filled(self, n: int, *, episode: int = EPISODE) -> Any:
        """A buffer after so many pushes."""
        buffer = self.make()
        for row in self.rows(n, episode=episode):
            buffer.push(*row)
        return buffer

    def rows(self, n: int, *, episode: int = EPISODE) -> list[Row]:
        """The first steps: observations that follow one another, and rewards 0.5, 1.5, 2.5, ..."""
        observations, actions = self._drawn
        found = []
        for i in range(n):
            # An episode's end leads to an observation that no episode begins with.
            last = i % episode == episode - 1
            number = i // episode + i
            found.append(
                Row(
                    observations[number],
                    actions[i],
                    i + 0.5,
                    last and i // episode % 2 == 0,
                    last and i // episode % 2 == 1,
                    observations[number + 1],
                )
            )
        return found

    @cached_property
    def _drawn(self) -> tuple[list[Nested], list[Any]]:
        spaces = copy.deepcopy(self.spaces)
        for space in spaces:
            space.seed(0)
        n = 8 * CAPACITY
        observations, actions = ([space.sample() for _ in range(n)] for space in spaces)
        return [map_leaves(np.asarray, x) for x in observations], actions

    @cached_property
    def spaces(self) -> tuple[Any, Any]:
        """Spaces of observations and actions."""
        env = make_vec_env(self.env)
        env.close()
        return env.single_observation_space, env.single_action_space

    def takes_seed(self, buffer: Any) -> bool:
        """Return whether `sample` takes a seed."""
        # The signature of native code does not tell.
        return isinstance(buffer, ReplayBuffer) or _takes_seed(buffer.sample)

    def sample(self, buffer: Any, size: int, seed: int = 0) -> dict[str, Any]:
        """A batch; where `sample` takes no seed, it is given none."""
        return dict(buffer.sample(size, seed) if self.takes_seed(buffer) else buffer.sample(size))

    def numbers(self, batch: dict[str, Any]) -> list[int]:
        """Numbers of the steps in a batch, by their rewards."""
        rewards = array_of(batch["rewards"]).astype(np.float64).ravel()
        numbers = rewards - 0.5
        known = (numbers == np.round(numbers)) & (numbers >= 0)
        expect(known.all(), "rewards that were pushed", rewards[~known].tolist())
        return [int(number) for number in numbers]

    def draws(self, buffer: Any, n: int = 400) -> dict[str, Any]:
        """Many rows, drawn in batches of the capacity or fewer."""
        size = min(len(buffer), CAPACITY)
        parts = [self.sample(buffer, size, seed) for seed in range(-(-n // size))]
        joined: dict[str, Any] = map_leaves(_joined, *parts)
        return joined


def _joined(*parts: Any) -> Array:
    return np.concatenate([array_of(part) for part in parts])


def differing_rows(column: Nested, expected: list[Nested]) -> list[int]:
    """Rows of a batch's entry that are not the expected ones, in single precision."""
    wrong: set[int] = set()
    wanted = [dict(leaves(row)) for row in expected]
    for path, leaf in leaves(column):
        for i, row in enumerate(leaf):
            if not _same(np.asarray(row), np.asarray(wanted[i][path])):
                wrong.add(i)
    return sorted(wrong)


def _same(one: Array, other: Array) -> bool:
    """Return whether two rows are equal; actions of one dimension may come without it."""
    if one.size != other.size:
        return False
    return bool(np.array_equal(one.ravel().astype("f"), other.ravel().astype("f")))
