"""The interface of a replay shard: its requests, answers and state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from sharpwave.buffers.schema import Schema
from sharpwave.buffers.views import View
from sharpwave.types import Array, BatchDict, Ids

__all__ = ["NO_IDS", "Answer", "Description", "Drawn", "Shard", "State"]

T = TypeVar("T")
Answer = Callable[[], T]
"""Function that waits for an answer: all shards are asked before any answer is awaited."""
NO_IDS: Ids = np.empty(0, np.uint64)


class Description(NamedTuple):
    """Description of the steps that a shard holds.

    Attributes:
        schema: The fields of a step; None before anybody said it.
        n_envs: Streams that are kept in order; None for rows in no order.
        capacity: Maximum number of steps that it keeps.
        alpha: Exponent of the priorities; None without priorities.
        squeezes: True if drawn actions of shape (1,) come without that axis.
    """

    schema: Schema | None
    n_envs: int | None
    capacity: int
    alpha: float | None
    squeezes: bool = False


class State(NamedTuple):
    """State of a shard; every answer brings it.

    Attributes:
        life: A number that changes where the shard lost its rows.
        size: Steps that it holds.
        total: The sum of their leaves, which it is drawn by.
        smallest: The smallest positive leaf, infinity without steps.
        pushed: Steps ever pushed.
        sampled: Steps ever drawn.
        stale: Priorities that came too late.
        max_priority: Priority that new steps get.
        is_full: True if a push overwrites the oldest step.
    """

    life: int
    size: int
    total: float
    smallest: float
    pushed: int
    sampled: int
    stale: int
    max_priority: float
    is_full: bool


class Drawn(NamedTuple):
    """Steps of a shard.

    Attributes:
        state: State of the shard when they were drawn.
        batch: The steps, nested where observations are; None where there were none to draw.
        ids: The shard's own ids of the steps.
        leaves: Their leaves; None without priorities.
        reason: Reason why there were none.
    """

    state: State
    batch: BatchDict | None
    ids: Ids
    leaves: Array | None
    reason: str = ""


class Shard(Protocol):
    """A part of a replay, in this process or another one.

    Attributes:
        name: Its address or folder.
        is_near: True if asking for its state costs next to nothing.

    Every method raises `ShardGone` where the shard does not answer.
    """

    name: str
    is_near: bool

    def describe(self) -> Description:
        """Description of the steps that it holds."""

    def create(self, schema: Schema, n_envs: int | None) -> Description:
        """Have it hold such steps, if it holds none."""

    def state(self) -> State:
        """State of the shard: its size, sums and counters."""

    def push(
        self, columns: Mapping[str, Array], streams: Array | None, priorities: Array | None
    ) -> Answer[State]:
        """Push steps, as `steps_of` gives them, to streams of the shard's own."""

    def draw(self, count: int, seed: int, view: View | None) -> Answer[Drawn]:
        """Draw steps, with their ids."""

    def update(self, ids: Ids, priorities: Array, life: int) -> Answer[tuple[int, State]]:
        """Set priorities of steps of this life; the number that came too late is returned."""

    def close(self) -> None:
        """Leave it as it is."""
