"""Places of the items of a batch in the buffer, and values that follow from the place alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from sharpwave.episodes.loaders.outputs import Output
from sharpwave.episodes.loaders.reader import SchemaLike
from sharpwave.episodes.loaders.snapshot import Snapshot
from sharpwave.types import Array

__all__ = ["PLACE_VALUES", "Cut", "Level", "Places"]

Places: TypeAlias = tuple[Array, Array, Array]
"""Of some items, [B] int64 each: the place of the episode in the snapshot, the step of the episode,
and the row of that step."""


class Cut(NamedTuple):
    """The rows of a batch.

    Attributes:
        episodes: [B] Places in the snapshot.
        steps: [B] The step of its episode at which an item begins.
        rows: [B] The row of that step.
        lengths: [B] Number of steps of an item.
        width: The same after padding.
    """

    episodes: Array
    steps: Array
    rows: Array
    lengths: Array
    width: int


class Level(Protocol):
    """Kind of the items of a dataset: episodes, steps, n-step transitions or windows."""

    @property
    def of_steps(self) -> bool:
        """True if every item stands for one step, so that steps can be filtered."""

    @property
    def ragged(self) -> bool:
        """True if items by themselves have no padding."""

    def outputs(self, schema: SchemaLike) -> list[Output]:
        """All that a batch can hold, in order."""

    @property
    def stride(self) -> int:
        """The steps from one item of an episode to the next."""

    def counts(self, lengths: Array) -> Array:
        """[E] Number of items in episodes of these lengths [E]."""

    def cut(self, snapshot: Snapshot, places: Places, key: int) -> Cut:
        """Rows of items in the buffer.

        Args:
            snapshot: The episodes.
            places: Places of the items; a multiple of the stride for a step.
            key: Random seed of this access.
        """


def _mask(_: Snapshot, cut: Cut) -> Array:
    mask: Array = np.arange(cut.width) < cut.lengths[:, None]
    return mask


def _indices(snapshot: Snapshot, cut: Cut) -> Array:
    return np.column_stack((snapshot.index.take(cut.episodes), cut.steps))


def _reaches_end(snapshot: Snapshot, cut: Cut) -> Array:
    reaches: Array = cut.steps + cut.lengths >= snapshot.lengths.take(cut.episodes)
    return reaches


PLACE_VALUES: Mapping[str, Callable[[Snapshot, Cut], Array]] = {
    "n_step_lens": lambda _, cut: cut.lengths,
    "_lens": lambda _, cut: cut.lengths,
    "_mask": _mask,
    "_reaches_episode_end": _reaches_end,
    "_index": lambda snapshot, cut: snapshot.index.take(cut.episodes),
    "_indices": _indices,
    "_start": lambda _, cut: cut.steps,
}
"""Values of items in a batch beside their fields: [B] each, `_mask` [B, width] and
`_indices` [B, 2]."""
