"""Tables in Parquet and Arrow files, read and written group by group."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sharpwave.core.optional import require
from sharpwave.errors import SharpwaveIOError
from sharpwave.formats.flat_columns import FlatColumns
from sharpwave.types import Array

MAGIC = {"parquet": b"PAR1", "arrow": b"ARROW1"}
Decoder: TypeAlias = Callable[[str, Any], Array]

GROUP_BYTES = 16 << 20
"""Rows are written together up to this size, which is also what reading holds in memory."""


class Tables:
    """One table in files of one kind, one file after another.

    Args:
        origin: Name in error messages.
        files: At least one.
        kind: "parquet" or "arrow".
    """

    def __init__(self, origin: str, files: Sequence[Path], kind: str) -> None:
        self.origin = origin
        self.files = files
        self.kind = kind
        self.n_rows = 0
        for number, path in enumerate(files):
            with _opened(path, kind) as file:
                if number == 0:
                    self.schema = file.schema
                elif not file.schema.equals(self.schema):
                    raise ValueError(f"{path} must have the columns of {files[0]}")
                self.n_rows += file.n_rows

    def groups(self, names: Sequence[str]) -> Iterator[Any]:
        """The rows of some columns as record batches, in order."""
        for path in self.files:
            with _opened(path, self.kind) as file:
                for batch in file.batches(names):
                    if batch.num_rows:
                        yield batch

    def column(self, name: str) -> Array:
        """All rows of a column of numbers: only for small ones."""
        self.check(name)
        parts = [from_arrow(self._where(name), batch.column(0)) for batch in self.groups([name])]
        return (
            np.concatenate(parts)
            if parts
            else np.empty(0, row_type(self.schema.field(name).type)[0])
        )

    def check(self, name: str) -> None:
        """Raise when there is no such column."""
        if name not in self.schema.names:
            raise ValueError(f"{self.origin} has no column {name!r}, only {self.schema.names}")

    def columns(
        self,
        names: Sequence[str],
        shapes: Mapping[str, tuple[int, ...]],
        decoders: Mapping[str, Decoder] | None = None,
    ) -> FlatColumns:
        """Some columns as columns of steps.

        Args:
            names: The columns.
            shapes: Shapes of their rows, where they are known better than by the table.
            decoders: Given what errors call it and a column that holds no numbers, give its rows.
        """
        decode = dict.fromkeys(names, from_arrow) | dict(decoders or {})
        types = {}
        for name in names:
            self.check(name)
            if decode[name] is from_arrow:
                dtype, shape = row_type(self.schema.field(name).type)
            if decode[name] is not from_arrow or (name not in shapes and -1 in shape):
                first = next(self.groups([name]), None)
                if first is not None:
                    rows = decode[name](self._where(name), first.column(0).slice(0, 1))
                    dtype, shape = rows.dtype, rows.shape[1:]
            types[name] = dtype, shapes.get(name, shape)

        def arrays(wanted: Sequence[str]) -> Iterator[dict[str, Array]]:
            for batch in self.groups(wanted):
                yield {
                    name: self._rows(name, decode[name], batch.column(name), types[name][1])
                    for name in wanted
                }

        def read(wanted: Sequence[str], lengths: Sequence[int]) -> Iterator[dict[str, Array]]:
            return cut(self.origin, arrays(wanted), lengths)

        return FlatColumns(self.origin, self.n_rows, types, read)

    def _rows(self, name: str, decode: Decoder, column: Any, shape: tuple[int, ...]) -> Array:
        rows = decode(self._where(name), column)
        if rows[:1].size != math.prod(shape):
            raise ValueError(
                f"{self._where(name)} must have rows of shape {shape}, got {rows.shape[1:]}"
            )
        return rows.reshape(len(rows), *shape)

    def _where(self, name: str) -> str:
        return f"{self.origin}: column {name!r}"


class TableWriter:
    """Writes one table, with rows together in groups of some size.

    Args:
        path: The file.
        kind: "parquet" or "arrow".
        schema: Schema of the table.
        group_rows: The size of the groups.
        compress: Compress with zstd.
    """

    def __init__(
        self, path: Path, kind: str, schema: Any, group_rows: int, *, compress: bool
    ) -> None:
        pa = require("pyarrow", extra="arrow")
        self._make_table, self._make_batch = pa.Table, pa.RecordBatch
        self._schema = schema
        self._group_rows = group_rows
        self._held: list[Any] = []
        self._held_rows = 0
        if kind == "parquet":
            self._file = require("pyarrow.parquet", extra="arrow").ParquetWriter(
                path,
                schema,
                compression="zstd" if compress else "none",
                use_dictionary=False,  # numbers seldom repeat, and NaNs keep their bits
            )
        else:
            options = pa.ipc.IpcWriteOptions(compression="zstd" if compress else None)
            self._file = pa.ipc.new_file(str(path), schema, options=options)

    def write(self, columns: Mapping[str, Any]) -> None:
        """Append rows, given as one Arrow array per column."""
        arrays = [columns[name] for name in self._schema.names]
        batch = self._make_batch.from_arrays(arrays, schema=self._schema)
        self._held.append(batch)
        self._held_rows += batch.num_rows
        if self._held_rows >= self._group_rows:
            self._flush()

    def _flush(self) -> None:
        if self._held_rows:
            table = self._make_table.from_batches(self._held).combine_chunks()
            self._file.write_table(table, self._group_rows)
        self._held, self._held_rows = [], 0

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._flush()
        self._file.close()


def rows_of_a_group(types: Iterable[tuple[npt.DTypeLike, tuple[int, ...]]]) -> int:
    """Number of rows of these dtypes and shapes that are written together."""
    row = sum(np.dtype(dtype).itemsize * math.prod(shape) for dtype, shape in types)
    return max(1, GROUP_BYTES // max(1, row))


def cut(
    origin: str, groups: Iterator[dict[str, Array]], lengths: Sequence[int]
) -> Iterator[dict[str, Array]]:
    """Rows that come in groups of any size, in groups of these sizes."""
    held: dict[str, Array] = {}
    at = n_held = 0
    for length in lengths:
        parts: list[dict[str, Array]] = []
        missing = length
        while missing:
            if at == n_held:
                held, at = next(groups, {}), 0
                if not held:
                    raise SharpwaveIOError(
                        f"{origin} is cut short: {missing} more rows were expected"
                    )
                n_held = len(next(iter(held.values())))
            stop = min(at + missing, n_held)
            parts.append({name: rows[at:stop] for name, rows in held.items()})
            missing -= stop - at
            at = stop
        yield {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


class _ParquetFile:
    def __init__(self, path: Path) -> None:
        self._file = require("pyarrow.parquet", extra="arrow").ParquetFile(path)
        self.schema = self._file.schema_arrow
        self.n_rows: int = self._file.metadata.num_rows

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        for group in range(self._file.metadata.num_row_groups):
            table = self._file.read_row_group(group, columns=list(names))
            yield from table.select(list(names)).combine_chunks().to_batches()

    def close(self) -> None:
        self._file.close()


class _ArrowFile:
    def __init__(self, path: Path) -> None:
        pa = require("pyarrow", extra="arrow")
        self._memory = pa.memory_map(str(path))
        self._file = pa.ipc.open_file(self._memory)
        self.schema = self._file.schema
        self.n_rows: int = sum(
            self._file.get_batch(number).num_rows for number in range(self._file.num_record_batches)
        )

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        for number in range(self._file.num_record_batches):
            yield self._file.get_batch(number).select(list(names))

    def close(self) -> None:
        self._memory.close()


@contextlib.contextmanager
def _opened(path: Path, kind: str) -> Iterator[_ParquetFile | _ArrowFile]:
    errors = require("pyarrow", extra="arrow").ArrowException
    try:
        file = _ParquetFile(path) if kind == "parquet" else _ArrowFile(path)
        with contextlib.closing(file):
            yield file
    except (errors, OSError) as error:
        if isinstance(error, SharpwaveIOError):
            raise
        raise SharpwaveIOError(f"{path} is damaged: {error}") from error


def arrow_type(dtype: npt.DTypeLike, shape: tuple[int, ...]) -> Any:
    """The type of a column: numbers, or flat lists of a fixed size where rows have a shape."""
    pa = require("pyarrow", extra="arrow")
    scalar = pa.from_numpy_dtype(np.dtype(dtype))
    return pa.list_(scalar, math.prod(shape)) if shape else scalar


def to_arrow(values: Array) -> Any:
    """Rows [N, ...] as a column."""
    pa = require("pyarrow", extra="arrow")
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    if values.ndim == 1:
        return flat
    return pa.FixedSizeListArray.from_arrays(flat, math.prod(values.shape[1:]))


def nested_type(dtype: npt.DTypeLike, shape: tuple[int, ...]) -> Any:
    """The type of a column with lists in lists: a vector's of a fixed size, others of any."""
    pa = require("pyarrow", extra="arrow")
    kind = pa.from_numpy_dtype(np.dtype(dtype))
    if len(shape) == 1:
        return pa.list_(kind, shape[0])
    for _ in shape:
        kind = pa.list_(kind)
    return kind


def to_nested(values: Array) -> Any:
    """Rows [N, ...] as a column with lists in lists."""
    if values.ndim <= 2:
        return to_arrow(values)
    pa = require("pyarrow", extra="arrow")
    column = pa.array(np.ascontiguousarray(values).reshape(-1))
    for axis in range(values.ndim - 1, 0, -1):
        total = math.prod(values.shape[: axis + 1])
        ends = np.arange(0, total + 1, int(values.shape[axis]), dtype=np.int32)
        column = pa.ListArray.from_arrays(ends, column)
    return column


def is_numeric(kind: Any) -> bool:
    """Return whether a column of this type holds numbers, or lists of them."""
    pa = require("pyarrow", extra="arrow")
    while _is_list(pa, kind):
        kind = kind.value_type
    types = pa.types
    return bool(types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind))


def row_type(kind: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Dtype and shape of the rows of a column; lists of no fixed size have the shape (-1,)."""
    pa = require("pyarrow", extra="arrow")
    shape = []
    while _is_list(pa, kind):
        shape.append(kind.list_size if pa.types.is_fixed_size_list(kind) else -1)
        kind = kind.value_type
    return np.dtype(kind.to_pandas_dtype()), tuple(shape)


def from_arrow(where: str, column: Any) -> Array:
    """Rows [N, ...] of a column of numbers or of lists of equal size.

    Raises:
        ValueError: Values are missing, or the lists differ in size.
    """
    pa = require("pyarrow", extra="arrow")
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    shape = [len(column)]
    while _is_list(pa, column.type):
        _check_whole(where, column)
        shape.append(_list_size(where, pa, column))
        column = column.flatten()
    _check_whole(where, column)
    values: Array = column.to_numpy(zero_copy_only=False)
    return values.reshape(shape)


def _is_list(pa: Any, kind: Any) -> bool:
    types = pa.types
    return bool(types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind))


def _check_whole(where: str, column: Any) -> None:
    if column.null_count:
        raise ValueError(f"{where} must have no missing values, got {column.null_count}")


def _list_size(where: str, pa: Any, column: Any) -> int:
    if pa.types.is_fixed_size_list(column.type):
        return int(column.type.list_size)
    sizes = require("pyarrow.compute", extra="arrow").min_max(column.value_lengths()).as_py()
    if sizes["min"] != sizes["max"]:
        raise ValueError(
            f"{where} must have lists of one size, got {sizes['min']} to {sizes['max']}"
        )
    return int(sizes["min"] or 0)
