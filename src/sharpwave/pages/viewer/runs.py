"""Runs of consecutive numbers that keep their own number while they grow and shrink."""

from __future__ import annotations

import numpy as np

from sharpwave.pages.viewer.source import Rows


class Runs:
    """The runs in the places of one environment's steps.

    A place is left out between two episodes, so every run is an episode, or what is left of it.

    Example:
        >>> runs = Runs()
        >>> [column.tolist() for column in runs.update(np.array([0, 1, 2, 4, 5]))]
        [[0, 1], [0, 4], [3, 2]]
        >>> [column.tolist() for column in runs.update(np.array([2, 4, 5, 6, 8]))]
        [[0, 1, 2], [2, 4, 8], [1, 3, 1]]
    """

    def __init__(self) -> None:
        none = np.empty(0, np.int64)
        self._numbers: Rows = none
        self._starts: Rows = none
        self._ends: Rows = none
        self._next = 0

    def update(self, places: Rows) -> tuple[Rows, Rows, Rows]:
        """Number, start and length [n] of every run in ascending places."""
        first = np.ones(len(places), np.bool_)
        first[1:] = np.diff(places) != 1
        starts = places[first]
        ends = np.append(places[np.flatnonzero(first)[1:] - 1], places[-1:]) + 1
        numbers = self._known(starts)
        new = numbers < 0
        numbers[new] = self._next + np.arange(np.count_nonzero(new))
        self._next += int(np.count_nonzero(new))
        self._numbers, self._starts, self._ends = numbers, starts, ends
        return numbers, starts, ends - starts

    def _known(self, starts: Rows) -> Rows:
        """The numbers of runs that were there before, -1 for the others."""
        if not len(self._starts):
            return np.full(len(starts), -1)
        at = np.searchsorted(self._starts, starts, side="right") - 1
        same = (at >= 0) & (starts < self._ends[at])
        numbers: Rows = np.where(same, self._numbers[at], -1)
        return numbers
