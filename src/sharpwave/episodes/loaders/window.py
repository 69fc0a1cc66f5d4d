"""Items are windows of episodes: pieces of a fixed length."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sharpwave import _native
from sharpwave.episodes.loaders.cut import Cut, Places
from sharpwave.episodes.loaders.outputs import Output, chosen_fields
from sharpwave.episodes.loaders.reader import SchemaLike
from sharpwave.episodes.loaders.snapshot import Snapshot
from sharpwave.types import Array

__all__ = ["EveryWindow", "RandomWindow"]


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
