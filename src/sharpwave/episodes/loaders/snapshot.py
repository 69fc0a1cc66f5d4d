"""The episodes of a dataset, as they were when it was made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sharpwave.episodes.loaders.filters import Filters, matching
from sharpwave.episodes.loaders.reader import EpisodeReader
from sharpwave.types import Array

__all__ = ["Snapshot"]


@dataclass(frozen=True)
class Snapshot:
    """Some episodes of a buffer at one moment.

    Attributes:
        index: [E] Their places in the buffer's table.
        ids: [E] Numbers that never repeat.
        starts: [E] The rows of their first steps.
        lengths: [E] Their steps.
        meta: [E, ...] Their values, by name.
    """

    index: Array
    ids: Array
    starts: Array
    lengths: Array
    meta: Mapping[str, Array]

    @classmethod
    def of(
        cls,
        reader: EpisodeReader,
        *,
        meta: Sequence[str],
        filter_meta: Filters | None,
        min_length: int,
        aborted: bool,
    ) -> Snapshot:
        """The episodes of at least `min_length` steps that pass the filters.

        Args:
            reader: The buffer.
            meta: The values of episodes to keep.
            filter_meta: Conditions on values of episodes.
            min_length: In steps.
            aborted: Take aborted episodes too.

        Raises:
            ValueError: The buffer has no episodes, or a filter does not fit its field.
        """
        table: Any = reader.episodes(aborted=aborted)
        if len(table.lengths) == 0:
            raise ValueError("the buffer is empty: it has no complete episode")
        chosen = (table.lengths >= min_length) & matching(
            "filter_meta", filter_meta, reader.schema.meta_fields, table.meta, len(table.lengths)
        )
        index = np.flatnonzero(chosen)
        kept: Any = slice(None) if len(index) == len(chosen) else index
        values = {name: table.meta[name][kept] for name in meta}
        return cls(index, table.ids[kept], table.starts[kept], table.lengths[kept], values)

    def alive(self, reader: EpisodeReader, episodes: Array) -> Array:
        """Mask of the episodes of this snapshot that are still in the buffer.

        Args:
            reader: The buffer.
            episodes: [B] Places in this snapshot.

        Returns:
            [B] bool.
        """
        reader.refresh()
        held: Any = reader.episodes(aborted=True)
        found: Array = np.isin(self.ids[episodes], held.ids)
        return found
