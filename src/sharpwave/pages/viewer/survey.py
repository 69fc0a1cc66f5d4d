"""One pass over a folder, column by column, that goes on where it was when there is more to see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from sharpwave.pages.viewer.pictures import Layout, layout_of
from sharpwave.pages.viewer.ranges import Tally
from sharpwave.pages.viewer.source import STRETCH, Column, EpisodeIndex, Progress, Rows, Source
from sharpwave.types import Array

BLOCK_BYTES = 8 << 20
"""Of a column that are in memory at a time."""

BUDGET = 1 << 30
"""Bytes of one column that are read, unless all are asked for."""

Piece: TypeAlias = tuple[int, int]
"""Consecutive rows: the first, and the one after the last."""


class Survey:
    """A folder's content, as far as it was read.

    Args:
        source: The folder.
        budget: Bytes of a column to read at most, at every update; of a larger one pieces are read
            that lie evenly spread. Rewards are always read in full. None reads everything.
    """

    def __init__(self, source: Source, *, budget: int | None = BUDGET) -> None:
        self.source = source
        self.tallies: dict[str, Tally] = {column.name: Tally() for column in source.columns}
        self.layouts: dict[str, Layout] = {}
        self.unreadable: dict[str, str] = {}
        self.version = 0
        none = np.empty(0, np.int64)
        self.episodes = EpisodeIndex(ids=none, starts=none, lengths=none, flags=none)
        self.returns: Array = np.empty(0, np.float64)
        self._budget = budget

    @property
    def reward(self) -> Column | None:
        """The field whose sum over an episode is its return."""
        found = [c for c in self.source.columns if c.role == "reward" and not c.per_episode]
        return found[0] if len(found) == 1 and found[0].size == 1 else None

    @property
    def has_returns(self) -> bool:
        """True if there are episodes and a reward field, so that episodes have returns."""
        return self.reward is not None and not (self.episodes.flags == STRETCH).any()

    def update(self, progress: Progress | None = None) -> None:
        """Read what was committed since the last time."""
        self.source.refresh()
        episodes = self.source.episodes()
        done, returns = self._known(episodes)
        changed = len(episodes) != len(self.episodes) or not (
            np.array_equal(episodes.ids, self.episodes.ids)
            and np.array_equal(episodes.lengths, self.episodes.lengths)
            and np.array_equal(episodes.flags, self.episodes.flags)
        )
        self.version += changed
        pieces = _merged(episodes.starts + done, episodes.starts + episodes.lengths)
        plans = {column.name: self._plan(column, pieces) for column in self._steps()}
        meter = _Meter(progress, sum(self._cost(c, plans[c.name]) for c in self._steps()))
        adder = _Returns(episodes, returns)
        for column in self._steps():
            for piece in plans[column.name]:
                self._read(column, piece, adder if column == self.reward else None)
                meter.advance(column.name, (piece[1] - piece[0]) * column.row_bytes)
        for column in self.source.columns:
            if column.per_episode and column.name in episodes.meta:
                tally = self.tallies[column.name] = Tally()
                tally.add(episodes.meta[column.name])
        self.episodes, self.returns = episodes, returns

    def _steps(self) -> Iterator[Column]:
        return (column for column in self.source.columns if not column.per_episode)

    def _known(self, episodes: EpisodeIndex) -> tuple[Rows, Array]:
        """[E] steps of the episodes that were read before, and what their rewards add up to."""
        before = self.episodes
        if not len(before):
            zeros = np.zeros(len(episodes), np.int64)
            return zeros, np.zeros(len(episodes), np.float64)
        at = np.minimum(np.searchsorted(before.ids, episodes.ids), len(before) - 1)
        same = before.ids[at] == episodes.ids
        done: Rows = np.where(same, before.lengths[at], 0)
        return done, np.where(same, self.returns[at], 0.0)

    def _plan(self, column: Column, pieces: list[Piece]) -> list[Piece]:
        """The rows to read, in pieces that fit into memory."""
        size = max(BLOCK_BYTES // max(column.row_bytes, 1), 1)
        cut = [
            (first, min(first + size, end))
            for begin, end in pieces
            for first in range(begin, end, size)
        ]
        whole = self._cost(column, cut)
        if self._budget is None or whole <= self._budget or column == self.reward:
            return cut
        kept = max(len(cut) * self._budget // whole, 2)
        return [cut[i] for i in np.unique(np.linspace(0, len(cut) - 1, kept).round().astype(int))]

    @staticmethod
    def _cost(column: Column, pieces: list[Piece]) -> int:
        return column.row_bytes * sum(end - begin for begin, end in pieces)

    def _read(self, column: Column, piece: Piece, adder: _Returns | None) -> None:
        begin, end = piece
        rows = np.arange(begin, end)
        try:
            values = self.source.read(rows, column.name)
        except IndexError:  # the writer let the oldest of them go in between
            if end - begin > 1:
                middle = (begin + end) // 2
                self._read(column, (begin, middle), adder)
                self._read(column, (middle, end), adder)
            return
        except OSError as error:
            self.unreadable.setdefault(column.name, str(error))
            return
        self.tallies[column.name].add(values)
        if column.name not in self.layouts and len(values):
            layout = layout_of(column.shape, values[0])
            if layout is not None:
                self.layouts[column.name] = layout
        if adder is not None:
            adder.add(rows, values)


class _Returns:
    """Adds rewards to the returns of the episodes that their rows belong to."""

    def __init__(self, episodes: EpisodeIndex, returns: Array) -> None:
        self._order = np.argsort(episodes.starts, kind="stable")
        self._starts = episodes.starts[self._order]
        self._returns = returns

    def add(self, rows: Rows, rewards: Array) -> None:
        of = self._order[np.searchsorted(self._starts, rows, side="right") - 1]
        weights = rewards.reshape(-1).astype(np.float64)
        self._returns += np.bincount(of, weights, minlength=len(self._returns))


class _Meter:
    """Counts bytes and tells about them."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def advance(self, what: str, n_bytes: int) -> None:
        self._done += n_bytes
        if self._progress is not None:
            self._progress(what, self._done, self._total)


def _merged(begins: Rows, ends: Rows) -> list[Piece]:
    """Intervals [begin, end), those that touch put together, the empty ones left out.

    Example:
        >>> _merged(np.array([5, 0, 9]), np.array([9, 5, 9]))
        [(0, 9)]
    """
    merged: list[Piece] = []
    kept = ends > begins
    for begin, end in sorted(zip(begins[kept].tolist(), ends[kept].tolist(), strict=True)):
        if merged and merged[-1][1] == begin:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((begin, end))
    return merged
