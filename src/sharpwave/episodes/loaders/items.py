"""The items of a dataset: finding them by number and reading their values."""

from __future__ import annotations

import os
import pickle
from typing import Any

import numpy as np

from sharpwave import _native
from sharpwave.episodes.loaders.cut import PLACE_VALUES, Cut, Level
from sharpwave.episodes.loaders.filters import Filters, check_names, matching
from sharpwave.episodes.loaders.outputs import Recipe
from sharpwave.episodes.loaders.reader import EpisodeReader
from sharpwave.episodes.loaders.snapshot import Snapshot
from sharpwave.types import Array

__all__ = ["Items"]


class Items:
    """The items of a level in some episodes, numbered from 0.

    May be pickled, and used in a forked process: there the buffer is opened anew.

    Args:
        reader: The buffer.
        snapshot: Its episodes.
        level: What an item is.
        recipe: What to read of it.
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
        self.anchors = _native.Anchors(self.level.counts(self.snapshot.lengths), chosen)

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
        every = _native.Anchors(self.level.counts(self.snapshot.lengths))
        episodes, steps = every.span(0, len(every))
        columns = self._reader.gather(self.snapshot.starts.take(episodes) + steps, list(filters))
        found: Array = np.flatnonzero(
            matching("filter_fields", filters, fields, columns, len(every))
        )
        return found

    @property
    def reader(self) -> EpisodeReader:
        """The buffer, opened anew in a process that was forked since."""
        if self._process != os.getpid():
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
            found = reader.gather(cut.rows, recipe.row)
            values += [found[name] for name in recipe.row]
        if recipe.next:
            found = reader.gather(cut.rows + cut.lengths, recipe.next)
            values += [found[name] for name in recipe.next]
        if recipe.span:
            found = reader.gather_ranges(cut.rows, cut.lengths, cut.width, recipe.span)
            values += [found[name] for name in recipe.span]
        snapshot = self.snapshot
        values += [snapshot.meta[name].take(cut.episodes, axis=0) for name in recipe.meta]
        values += [PLACE_VALUES[name](snapshot, cut) for name in recipe.place]
        return values

    def cut(self, episodes: Array, anchors: Array, key: int) -> Cut:
        """Where items are.

        Args:
            episodes: [B] Their episodes, places in the snapshot.
            anchors: [B] Their places among the items of the episode.
            key: Of random choices.
        """
        return self.level.cut(self.snapshot, episodes, anchors, key)

    def read_alive(self, places: tuple[Array, Array], key: int) -> tuple[Cut, list[Array]]:
        """Those of the items whose episodes are still there, and their values.

        Args:
            places: Episodes and anchors of the items, as for `cut`.
            key: Of random choices.
        """
        episodes, anchors = places
        while True:
            cut = self.cut(episodes, anchors, key)
            try:
                return cut, self.read(cut)
            except IndexError:
                alive = self.still_there(episodes)
                episodes, anchors = episodes[alive], anchors[alive]

    def still_there(self, episodes: Array) -> Array:
        """Which of some episodes, one of which is not, are still in the buffer.

        Args:
            episodes: [B] Places in the snapshot.

        Returns:
            [B] bool, one of them False.

        Raises:
            IndexError: All are there, so that this is not why they could not be read.
        """
        alive = self.snapshot.alive(self.reader, episodes)
        if alive.all():
            raise IndexError("steps of episodes that are in the buffer cannot be read")
        return alive

    def __len__(self) -> int:
        return len(self.anchors)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["anchors"]
        state["chosen"] = None
        if self._filtered:
            counts = self.level.counts(self.snapshot.lengths)
            episodes, anchors = self.anchors.span(0, len(self))
            state["chosen"] = (counts.cumsum() - counts).take(episodes) + anchors
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        chosen = state.pop("chosen")
        self.__dict__.update(state, _process=os.getpid())
        self._place(chosen)
