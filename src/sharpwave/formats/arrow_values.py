"""Arrays of numbers as Arrow columns, and back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from sharpwave.core.optional import require
from sharpwave.types import Array


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
