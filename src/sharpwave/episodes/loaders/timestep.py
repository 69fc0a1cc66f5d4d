"""Items are single steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sharpwave.episodes.loaders.cut import Cut, Places
from sharpwave.episodes.loaders.outputs import Output, chosen_fields
from sharpwave.episodes.loaders.reader import SchemaLike
from sharpwave.episodes.loaders.snapshot import Snapshot
from sharpwave.types import Array

__all__ = ["Timestep"]

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
