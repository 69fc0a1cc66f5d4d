"""Interface of a folder for the viewer, whatever kind of store it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from sharpwave.types import Array

Rows: TypeAlias = npt.NDArray[np.int64]
"""Numbers of rows, or of episodes."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is, and how much there is."""

OPEN, COMPLETE, ABORTED, STRETCH = range(4)
"""State of an episode; a stretch is consecutive rows of a store that knows no episodes."""

STATES = ("open", "complete", "aborted", "rows")
"""The same in words."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A field as the folder keeps it.

    Attributes:
        name: The dotted name.
        dtype: NumPy's name of its dtype.
        shape: Shape of one value.
        role: obs, action, reward, terminated, truncated, next_obs or extra.
        per_episode: One value for an episode instead of one for each step.
        files: Prefix of the names of its files; None when other fields are in them too.
        codec: Compression of its values.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: str = "extra"
    per_episode: bool = False
    files: str | None = None
    codec: str = "none"

    @property
    def size(self) -> int:
        """Numbers in one value."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def row_bytes(self) -> int:
        """Bytes of one value in memory."""
        return self.size * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, kw_only=True)
class EpisodeIndex:
    """A snapshot of the episodes in a folder, ordered by id.

    Attributes:
        ids: [E] that never repeat.
        starts: [E] the first row of each.
        lengths: [E] steps.
        flags: [E] OPEN, COMPLETE, ABORTED or STRETCH.
        meta: One value for each episode, by name.
    """

    ids: Rows
    starts: Rows
    lengths: Rows
    flags: Array
    meta: dict[str, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, kw_only=True)
class About:
    """Facts about a folder that are known before a row is read.

    Attributes:
        kind: episodes or replay.
        path: The folder.
        library: The version of this library that made it.
        version: The version of its format.
        options: Options that it was made with.
        notes: Notes on parts that the viewer cannot show.
    """

    kind: str
    path: Path
    library: str
    version: int
    options: dict[str, Any]
    notes: tuple[str, ...] = ()


class Source(Protocol):
    """An open folder. Rows are numbered in the order of the episodes that hold them."""

    @property
    def about(self) -> About:
        """Facts that are known before a row is read."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The fields, those of the steps first."""

    def refresh(self) -> None:
        """See what a writer has committed since."""

    def episodes(self) -> EpisodeIndex:
        """All episodes, complete or not."""

    def read(self, rows: Rows, field: str) -> Array:
        """Values [n, *shape] of the steps at `rows`, of one field.

        Raises:
            IndexError: A row is no longer there.
        """

    def damage(self, *, verify: bool) -> list[str]:
        """Damage of the folder, in words; with `verify` by comparing the checksums of all files."""

    def close(self) -> None:
        """Let the folder go."""
