"""Several buffers of episodes read as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave.episodes.bulk import all_data
from sharpwave.episodes.loaders import LoadsEpisodes
from sharpwave.episodes.loaders.reader import EpisodeReader, FieldLike
from sharpwave.episodes.table import EpisodeTable, MetaColumns
from sharpwave.types import Array

__all__ = ["EpisodeUnion"]

ROW_BITS = 48
"""A row or id of the union: the place of its buffer above these bits, its number there below."""
NUMBER = (1 << ROW_BITS) - 1


class EpisodeUnion(LoadsEpisodes):
    """The episodes of several buffers, one buffer after the other, for reading.

    Args:
        sources: Folders, which are opened read-only, or open buffers. All must have the same fields
            and meta fields, with the same dtypes and shapes.

    Raises:
        TypeError: `sources` is no list of folders and buffers.
        ValueError: There is none, or fields differ; the message shows how.

    Attributes:
        buffers: The buffers.
        schema: That of the first.
    """

    def __init__(self, sources: Sequence[str | Path | EpisodeReader]) -> None:
        if isinstance(sources, str | Path) or not isinstance(sources, Sequence):
            raise TypeError(f"sources must be a list of folders, got {sources!r}")
        if not sources:
            raise ValueError("sources must have at least one folder, got none")
        self.buffers: tuple[EpisodeReader, ...] = tuple(_opened(source) for source in sources)
        self._own: list[Any] = [
            buffer
            for source, buffer in zip(sources, self.buffers, strict=True)
            if source is not buffer
        ]
        self.schema = self.buffers[0].schema
        for i, buffer in enumerate(self.buffers[1:], start=1):
            differences = [
                *_differences("field", self.schema.fields, buffer.schema.fields),
                *_differences("meta field", self.schema.meta_fields, buffer.schema.meta_fields),
            ]
            if differences:
                lines = "\n".join(f"  {line}" for line in differences)
                raise ValueError(
                    f"sources must have the same fields, {_called(sources, 0)} and "
                    f"{_called(sources, i)} differ:\n{lines}"
                )

    @property
    def num_episodes(self) -> int:
        """The complete episodes of all buffers."""
        return len(self)

    def __len__(self) -> int:
        """The same."""
        return sum(len(buffer.episodes().ids) for buffer in self.buffers)

    def episodes(self, aborted: bool = False) -> EpisodeTable:
        """The table of all episodes.

        Args:
            aborted: With those that were never finished.
        """
        tables = [buffer.episodes(aborted=aborted) for buffer in self.buffers]

        def joined(name: str, *, numbered: bool = False) -> Array:
            return np.concatenate(
                [
                    getattr(table, name) + (i << ROW_BITS if numbered else 0)
                    for i, table in enumerate(tables)
                ]
            )

        def meta(name: str) -> Array:
            return np.concatenate([table.meta[name] for table in tables])

        return EpisodeTable(
            ids=joined("ids", numbered=True),
            starts=joined("starts", numbered=True),
            lengths=joined("lengths"),
            flags=np.concatenate([table.flags for table in tables]),
            meta=MetaColumns(iter(self.schema.meta_fields), meta),
        )

    def gather(
        self, rows: Array, fields: Sequence[str] | None = None, out: dict[str, Array] | None = None
    ) -> dict[str, Array]:
        """Values of rows.

        Args:
            rows: Numbers of rows, of any shape; -1 gives zeros.
            fields: Names of the fields to read; all by default.
            out: Arrays to write into.

        Returns:
            By name: [*rows.shape, ...].

        Raises:
            IndexError: A row is not there, or not any more.
        """

        def read(buffer: EpisodeReader, chosen: Array, names: Sequence[str]) -> dict[str, Array]:
            return buffer.gather(rows[chosen] & NUMBER, names)

        rows = np.asarray(rows)
        return self._collected(rows, rows.shape, fields, out, read)

    def gather_ranges(
        self,
        starts: Array,
        lengths: Array,
        width: int,
        fields: Sequence[str] | None = None,
        out: dict[str, Array] | None = None,
    ) -> dict[str, Array]:
        """Values of ranges of rows, followed by zeros.

        Args:
            starts: [B] The first row of each.
            lengths: [B] Number of rows.
            width: The rows of the result.
            fields: Names of the fields to read; all by default.
            out: Arrays to write into.

        Returns:
            By name: [B, width, ...].

        Raises:
            IndexError: A row is not there, or not any more.
        """

        def read(buffer: EpisodeReader, chosen: Array, names: Sequence[str]) -> dict[str, Array]:
            return buffer.gather_ranges(starts[chosen] & NUMBER, lengths[chosen], width, names)

        starts, lengths = np.asarray(starts), np.asarray(lengths)
        return self._collected(starts, (len(starts), width), fields, out, read)

    def _collected(
        self,
        rows: Array,
        shape: tuple[int, ...],
        fields: Sequence[str] | None,
        out: dict[str, Array] | None,
        read: Callable[[EpisodeReader, Array, Sequence[str]], dict[str, Array]],
    ) -> dict[str, Array]:
        """Values that `read` gives for the rows of each buffer, in their places."""
        names = list(self.schema.fields) if fields is None else list(fields)
        owners = rows >> ROW_BITS
        if np.any((owners < -1) | (owners >= len(self.buffers))):
            raise IndexError("rows must be numbers of the union's table")
        found = {} if out is None else out
        for name in names:
            field = self.schema.fields[name]
            if name not in found:
                found[name] = np.zeros((*shape, *field.shape), field.dtype)
            else:
                found[name][owners == -1] = 0
        for i in np.unique(owners[owners >= 0]):
            chosen = owners == i
            for name, values in read(self.buffers[i], chosen, names).items():
                found[name][chosen] = values
        return found

    def refresh(self) -> None:
        """See what writers have committed since."""
        for buffer in self.buffers:
            buffer.refresh()

    def get_all_data(
        self,
        fields: Sequence[str] | None = None,
        meta_fields: Sequence[str] | None = None,
        device: Any = None,
        *,
        as_numpy: bool = False,
    ) -> dict[str, Any]:
        """All episodes at once, as `EpisodeBuffer.get_all_data` gives them."""
        return all_data(self, fields, meta_fields, device, as_numpy=as_numpy)

    def close(self) -> None:
        """Close the buffers that were opened here."""
        for buffer in self._own:
            buffer.close()

    def __enter__(self) -> EpisodeUnion:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _opened(source: Any) -> EpisodeReader:
    if isinstance(source, str | Path):
        from sharpwave.episodes.buffer import EpisodeBuffer

        opened: EpisodeReader = EpisodeBuffer.from_folder(source, read_only=True)
        return opened
    if not callable(getattr(source, "gather_ranges", None)):
        raise TypeError(f"sources must be folders or episode buffers, got {source!r}")
    reader: EpisodeReader = source
    return reader


def _called(sources: Sequence[Any], i: int) -> str:
    return str(sources[i]) if isinstance(sources[i], str | Path) else f"sources[{i}]"


def _differences(
    kind: str, first: Mapping[str, FieldLike], second: Mapping[str, FieldLike]
) -> list[str]:
    """One line for every field that is not the same in both."""
    lines = []
    for name in dict.fromkeys([*first, *second]):
        one, other = _spelled(first.get(name)), _spelled(second.get(name))
        if one != other:
            lines.append(f"{kind} {name!r}: {one} and {other}")
    return lines


def _spelled(field: FieldLike | None) -> str:
    return "none" if field is None else f"{field.dtype} {tuple(field.shape)}"
