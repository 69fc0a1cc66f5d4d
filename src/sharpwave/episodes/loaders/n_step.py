"""Items are transitions over up to n steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sharpwave.episodes.loaders.cut import Cut, Places
from sharpwave.episodes.loaders.outputs import Output, chosen_fields
from sharpwave.episodes.loaders.reader import SchemaLike
from sharpwave.episodes.loaders.snapshot import Snapshot
from sharpwave.types import Array

__all__ = ["NStepLevel"]


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
