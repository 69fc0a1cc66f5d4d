"""Tables of episodes: where their steps lie, and their meta fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sharpwave import _native
from sharpwave.formats.spec import EpisodeField
from sharpwave.types import Array

__all__ = ["ABORTED", "COMPLETE", "EpisodeTable", "LostEpisodes"]

SMALL_META_BYTES = 256
"""Fields of episodes up to this size are read with the table, larger ones when asked for."""

COMPLETE = 1
"""The flag of an episode that came to its end."""

ABORTED = 2
"""The flag of an episode that was cut: by an exception, or by the death of its writer."""


@dataclass(frozen=True, eq=False)
class EpisodeTable:
    """The finished episodes of a buffer at one moment, oldest first.

    Attributes:
        ids: Numbers of the episodes [E], which never repeat.
        starts: The row of the first step of each [E].
        lengths: The steps of each [E].
        flags: COMPLETE or ABORTED [E].
        meta: Fields of the episodes by name, each [E, ...]. Large ones are read when asked for.
    """

    ids: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    flags: npt.NDArray[np.uint8]
    meta: Mapping[str, Array]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def n_steps(self) -> int:
        """The steps of all of them."""
        return int(self.lengths.sum())


@dataclass(frozen=True)
class LostEpisodes:
    """Episodes lost to damaged files. False when nothing is lost.

    Attributes:
        chunks: Damage of each file, in words.
        ids: Numbers of the episodes that are lost.
        n_steps: Their steps, as far as their number is known.
    """

    chunks: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()
    n_steps: int = 0

    @classmethod
    def of(cls, damage: tuple[Any, ...], others: Sequence[str] = ()) -> LostEpisodes:
        """The losses that the native store found, after damage of other files."""
        chunks, ids, n_steps = damage
        return cls((*others, *chunks), tuple(ids.tolist()), n_steps)

    def __bool__(self) -> bool:
        return bool(self.chunks or self.ids)

    def __str__(self) -> str:
        if not self:
            return "nothing is lost"
        chunks = "; ".join(self.chunks)
        return f"{chunks} (episodes {list(self.ids)} with {self.n_steps} steps)"


class MetaColumns(Mapping[str, Array]):
    """Arrays by name that are read when first asked for.

    Args:
        names: The names.
        read: Gives the array of a name.
    """

    def __init__(self, names: Iterator[str], read: Callable[[str], Array]) -> None:
        self._arrays: dict[str, Array | None] = dict.fromkeys(names)
        self._read = read

    def __getitem__(self, name: str) -> Array:
        array = self._arrays[name]
        if array is None:
            array = self._arrays[name] = self._read(name)
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def read_table(
    engine: _native.EpisodeEngine, meta_fields: Mapping[str, EpisodeField], *, aborted: bool
) -> EpisodeTable:
    """The finished episodes of a store, oldest first."""
    columns = {name: number for number, name in enumerate(meta_fields)}
    small = [name for name, field in meta_fields.items() if field.row_bytes <= SMALL_META_BYTES]
    while True:
        ids, starts, lengths, flags = engine.table(aborted)

        def read(name: str, ids: Array = ids) -> Array:
            field = meta_fields[name]
            values = np.empty((len(ids), *field.shape), field.dtype)
            engine.gather_meta(ids, columns[name], values.reshape(-1).view(np.uint8))
            return values

        meta = MetaColumns(iter(columns), read)
        try:
            for name in small:
                meta[name]
        except IndexError:  # the oldest made room for a new one meanwhile
            continue
        return EpisodeTable(ids, starts, lengths, flags, meta)
