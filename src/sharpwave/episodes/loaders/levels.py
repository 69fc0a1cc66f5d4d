"""Levels of items: single steps, n-step transitions, windows, and whole episodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sharpwave import _native
from sharpwave.episodes.loaders.cut import Cut, Places
from sharpwave.episodes.loaders.outputs import Output, chosen_fields
from sharpwave.episodes.loaders.reader import SchemaLike
from sharpwave.episodes.loaders.snapshot import Snapshot
from sharpwave.types import Array

__all__ = ["EveryWindow", "NStepLevel", "RandomWindow", "Timestep", "Trajectory"]

NO_LENGTHS = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Timestep:
    """Single steps.

    Attributes:
        fields: Names of the fields to read; None for all.
    """

    fields: tuple[str, ...] | None = None

    of_steps = True
    ragged = False
    stride = 1

    def outputs(self, schema: SchemaLike) -> list[Output]:
        """All that a batch can hold."""
        chosen = chosen_fields("fields", self.fields, list(schema.fields))
        return [
            *(Output(name, "row", name, name in chosen) for name in schema.fields),
            *(Output(name, "meta", name) for name in schema.meta_fields),
            Output("_indices", "place", "_indices"),
        ]

    def counts(self, lengths: Array) -> Array:
        """An item for every step."""
        return lengths

    def cut(self, _: Snapshot, places: Places, __: int) -> Cut:
        """One row each."""
        return Cut(*places, NO_LENGTHS, 1)


@dataclass(frozen=True)
class Trajectory:
    """Whole episodes.

    Attributes:
        fields: Names of the fields to read; None for all.
        pad_to: The width of every batch; None for that of its longest episode.
    """

    fields: tuple[str, ...] | None = None
    pad_to: int | None = None

    of_steps = False
    ragged = True
    stride = 1

    def outputs(self, schema: SchemaLike) -> list[Output]:
        """All that a batch can hold."""
        chosen = chosen_fields("fields", self.fields, list(schema.fields))
        return [
            *(Output(name, "span", name, name in chosen) for name in schema.fields),
            *(Output(name, "meta", name) for name in schema.meta_fields),
            *(Output(name, "place", name) for name in ("_lens", "_mask", "_index")),
        ]

    def counts(self, lengths: Array) -> Array:
        """One item an episode."""
        return np.ones_like(lengths)

    def cut(self, snapshot: Snapshot, places: Places, _: int) -> Cut:
        """All rows of the episodes.

        Raises:
            ValueError: An episode is longer than `pad_to`.
        """
        lengths = snapshot.lengths.take(places[0])
        longest = int(lengths.max(initial=0))
        if self.pad_to is not None and longest > self.pad_to:
            raise ValueError(f"pad_to must be at least {longest}, the steps of an episode")
        width = longest if self.pad_to is None else self.pad_to
        return Cut(*places, lengths, width)


@dataclass(frozen=True)
class NStepLevel:
    """A step t, the step t + k, and what lies between: k = min(n, L - t - 1) for episodes of L.

    The last step of an episode begins no transition; it is where others end.

    Attributes:
        n: Steps of a transition.
        current: Fields to read at t; None for all.
        next: Fields to read at t + k, called next_<field>; None for all.
        sequence: Fields to read from t to t + k - 1, called seq_<field> and padded with zeros to n.
    """

    n: int
    current: tuple[str, ...] | None = None
    next: tuple[str, ...] | None = None
    sequence: tuple[str, ...] = ()

    of_steps = True
    ragged = False
    stride = 1

    def outputs(self, schema: SchemaLike) -> list[Output]:
        """All that a batch can hold."""
        names = list(schema.fields)
        current = chosen_fields("current_fields", self.current, names)
        following = chosen_fields("next_fields", self.next, names)
        sequence = chosen_fields("sequence_fields", self.sequence, names)
        return [
            *(Output(name, "row", name, name in current) for name in names),
            *(Output(f"next_{name}", "next", name, name in following) for name in names),
            *(Output(f"seq_{name}", "span", name, name in sequence) for name in names),
            *(Output(name, "meta", name) for name in schema.meta_fields),
            Output("n_step_lens", "place", "n_step_lens"),
            Output("_indices", "place", "_indices"),
        ]

    def counts(self, lengths: Array) -> Array:
        """An item for every step but the last."""
        counts: Array = np.maximum(lengths - 1, 0)
        return counts

    def cut(self, snapshot: Snapshot, places: Places, _: int) -> Cut:
        """Rows from t to t + k."""
        episodes, steps, _rows = places
        left = snapshot.lengths.take(episodes) - steps
        return Cut(*places, np.minimum(left - 1, self.n), self.n)


@dataclass(frozen=True)
class _Window:
    """Pieces of `length` steps; shorter episodes are padded with zeros.

    Attributes:
        length: Steps of a window.
        fields: Names of the fields to read; None for all.
    """

    length: int
    fields: tuple[str, ...] | None = None

    of_steps = False
    ragged = False

    def outputs(self, schema: SchemaLike) -> list[Output]:
        """All that a batch can hold."""
        chosen = chosen_fields("fields", self.fields, list(schema.fields))
        places = ("_lens", "_reaches_episode_end", "_mask", "_index", "_start")
        return [
            *(Output(name, "span", name, name in chosen) for name in schema.fields),
            *(Output(name, "meta", name) for name in schema.meta_fields),
            *(Output(name, "place", name) for name in places),
        ]


@dataclass(frozen=True)
class RandomWindow(_Window):
    """One window of every episode; every place where it fits is equally likely."""

    stride = 1

    def counts(self, lengths: Array) -> Array:
        """One item an episode."""
        return np.minimum(lengths, 1)

    def cut(self, snapshot: Snapshot, places: Places, key: int) -> Cut:
        """Rows from a random step on."""
        episodes, _, first = places
        steps, rows, lengths = _native.drawn_windows(
            episodes, first, snapshot.lengths.take(episodes), self.length, key
        )
        return Cut(episodes, steps, rows, lengths, self.length)


@dataclass(frozen=True)
class EveryWindow(_Window):
    """The windows that begin at steps 0, stride, 2 stride, ... until one reaches the end.

    Attributes:
        stride: Steps from the begin of one window to that of the next. Up to `length`, every step
            is in a window.
    """

    stride: int = 1

    def counts(self, lengths: Array) -> Array:
        """Windows until the end of the episode is reached."""
        reaching = 1 + -(-np.maximum(lengths - self.length, 0) // self.stride)
        beginning = -(-lengths // self.stride)  # strides longer than windows may jump over the end
        counts: Array = np.minimum(reaching, beginning)
        return counts

    def cut(self, snapshot: Snapshot, places: Places, _: int) -> Cut:
        """Rows from a multiple of the stride on."""
        episodes, steps, _rows = places
        left = snapshot.lengths.take(episodes) - steps
        return Cut(*places, np.minimum(left, self.length), self.length)
