"""Interface of a buffer of episodes for datasets: a table of episodes, and rows by number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sharpwave.types import Array

__all__ = ["EpisodeReader", "FieldLike", "SchemaLike", "TableLike"]


class FieldLike(Protocol):
    """One field of a step or of an episode."""

    @property
    def dtype(self) -> Any:
        """The name of its NumPy dtype."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one value."""


class SchemaLike(Protocol):
    """The fields of steps and of episodes, by dotted name, in order."""

    @property
    def fields(self) -> Mapping[str, Any]:
        """Fields of steps."""

    @property
    def meta_fields(self) -> Mapping[str, Any]:
        """Fields of episodes."""


class TableLike(Protocol):
    """Episodes at one moment, oldest first."""

    @property
    def ids(self) -> Array:
        """[E] int64 that never repeat."""

    @property
    def starts(self) -> Array:
        """[E] int64, the row of the first step."""

    @property
    def lengths(self) -> Array:
        """[E] int64, steps."""

    @property
    def meta(self) -> Mapping[str, Array]:
        """[E, ...] by name."""


class EpisodeReader(Protocol):
    """Episodes whose steps are rows, numbered for ever."""

    @property
    def schema(self) -> Any:
        """A `SchemaLike`."""

    def episodes(self, aborted: bool = False) -> Any:
        """The table of complete episodes, and of aborted ones if asked for: a `TableLike`."""

    def gather(
        self, rows: Array, fields: Sequence[str] | None = None, out: dict[str, Array] | None = None
    ) -> dict[str, Array]:
        """Values [*rows.shape, ...] in the order of `fields`; IndexError for rows that are gone."""

    def gather_ranges(
        self,
        starts: Array,
        lengths: Array,
        width: int,
        fields: Sequence[str] | None = None,
        out: dict[str, Array] | None = None,
    ) -> dict[str, Array]:
        """Values [B, width, ...] of ranges of rows, followed by zeros."""

    def refresh(self) -> None:
        """See what a writer has committed since."""
