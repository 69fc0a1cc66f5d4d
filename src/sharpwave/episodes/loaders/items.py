"""The items of a dataset: finding them by number and reading their values."""

from __future__ import annotations

import os
import pickle
from typing import Any

import numpy as np

from sharpwave import _native
from sharpwave.episodes.loaders.cut import PLACE_VALUES, Cut, Level, Places
from sharpwave.episodes.loaders.filters import Filters, check_names, matching
from sharpwave.episodes.loaders.outputs import Recipe
from sharpwave.episodes.loaders.reader import EpisodeReader
from sharpwave.episodes.loaders.snapshot import Snapshot
from sharpwave.types import Array

__all__ = ["Items"]

PIECE = 1 << 20
"""Steps that are looked at together when they are filtered."""


class Items:
    """The items of a level in some episodes, numbered from 0.

    May be pickled, and used in a forked process: there the buffer is opened anew.

    Args:
        reader: The buffer.
        snapshot: Its episodes.
        level: Kind of the items.
        recipe: Values to read of an item.
        filter_fields: Conditions on the step of an item.
    """

    def __init__(
        self,
        reader: EpisodeReader,
        snapshot: Snapshot,
        level: Level,
        recipe: Recipe,
        filter_fields: Filters | None = None,
    ) -> None:
        self._reader = reader
        self._process = os.getpid()
        self.snapshot = snapshot
        self.level = level
        self.recipe = recipe
        chosen = self._matching(filter_fields) if filter_fields else None
        self._place(chosen)

    def _place(self, chosen: Array | None) -> None:
        self._filtered = chosen is not None
        snapshot, level = self.snapshot, self.level
        counts = level.counts(snapshot.lengths)
        self.anchors = _native.Anchors(counts, snapshot.starts, level.stride, chosen)

    def _matching(self, filters: Filters) -> Array:
        """The numbers of the items whose steps meet the conditions."""
        fields = self._reader.schema.fields
        check_names("filter_fields", filters, fields)
        for name in filters:
            if fields[name].shape != ():
                raise ValueError(
                    f"filter_fields needs fields that are single numbers, "
                    f"{name!r} has shape {fields[name].shape}"
                )
        every = _native.Anchors(self.level.counts(self.snapshot.lengths), self.snapshot.starts)
        columns = {name: np.empty(len(every), fields[name].dtype) for name in filters}
        for begin in range(0, len(every), PIECE):
            piece = slice(begin, min(begin + PIECE, len(every)))
            _, _, rows = every.span(piece.start, piece.stop)
            for name, values in self._reader.gather(rows, list(filters)).items():
                columns[name][piece] = values
        found: Array = np.flatnonzero(
            matching("filter_fields", filters, fields, columns, len(every))
        )
        return found

    @property
    def reader(self) -> EpisodeReader:
        """The buffer, opened anew in a process that was forked since."""
        if self._process != os.getpid():
            self._inherited = self._reader  # kept: its end belongs to the process that made it
            self._reader = pickle.loads(pickle.dumps(self._reader))
            self._process = os.getpid()
        return self._reader

    def read(self, cut: Cut) -> list[Array]:
        """The values of the items of a cut, in the order of the recipe: [B, ...] each.

        Raises:
            IndexError: An episode was overwritten.
        """
        recipe, reader = self.recipe, self.reader
        values: list[Array] = []
        if recipe.row:
            values += reader.gather(cut.rows, recipe.row).values()
        if recipe.next:
            values += reader.gather(cut.rows + cut.lengths, recipe.next).values()
        if recipe.span:
            ranges = reader.gather_ranges(cut.rows, cut.lengths, cut.width, recipe.span)
            values += ranges.values()
        snapshot = self.snapshot
        values += [snapshot.meta[name].take(cut.episodes, axis=0) for name in recipe.meta]
        values += [PLACE_VALUES[name](snapshot, cut) for name in recipe.place]
        return values

    def cut(self, places: Places, key: int) -> Cut:
        """Rows of items in the buffer.

        Args:
            places: As `anchors` finds them.
            key: Random seed of this access.
        """
        return self.level.cut(self.snapshot, places, key)

    def read_alive(self, places: Places, key: int) -> tuple[Cut, list[Array]]:
        """Those of the items whose episodes are still there, and their values.

        Args:
            places: As `anchors` finds them.
            key: Random seed of this access.
        """
        while True:
            cut = self.cut(places, key)
            try:
                return cut, self.read(cut)
            except IndexError:
                places = self.still_there(places)

    def still_there(self, places: Places) -> Places:
        """Those of some places, one of which is not, whose episodes are still in the buffer.

        Raises:
            IndexError: All are there, so that this is not why they could not be read.
        """
        episodes, steps, rows = places
        alive = self.snapshot.alive(self.reader, episodes)
        if alive.all():
            raise IndexError("steps of episodes that are in the buffer cannot be read")
        return episodes[alive], steps[alive], rows[alive]

    def __len__(self) -> int:
        return len(self.anchors)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["anchors"]
        state["chosen"] = None
        if self._filtered:
            counts = self.level.counts(self.snapshot.lengths)
            episodes, steps, _ = self.anchors.span(0, len(self))
            state["chosen"] = (counts.cumsum() - counts).take(episodes) + steps
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        chosen = state.pop("chosen")
        self.__dict__.update(state, _process=os.getpid())
        self._place(chosen)
