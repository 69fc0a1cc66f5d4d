"""Items are whole episodes, padded to the longest of a batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sharpwave.episodes.loaders.cut import Cut, Places
from sharpwave.episodes.loaders.outputs import Output, chosen_fields
from sharpwave.episodes.loaders.reader import SchemaLike
from sharpwave.episodes.loaders.snapshot import Snapshot
from sharpwave.types import Array

__all__ = ["Trajectory"]


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
