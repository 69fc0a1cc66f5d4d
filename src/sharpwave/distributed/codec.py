"""Messages between machines: a checked header and raw little-endian columns, and never code.

A message is a header of fixed length, a table, and the columns, each of which begins at a multiple
of 64 bytes:

    magic | version | length of the table | checksum | length of the message | table | columns

The table is JSON: the kind of the message, plain values (`meta`), and name, dtype and shape of each
column. The checksum is over everything else.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from sharpwave.errors import WireError
from sharpwave.printable import printable
from sharpwave.types import Array

__all__ = ["LIMIT", "VERSION", "Packed", "Plain", "pack", "unpack"]

VERSION = 1
"""Of the messages; other ones are refused."""
LIMIT = 64 * 2**20
"""Bytes of the largest message that is taken where nobody says anything else."""

Plain = int | float | str | bool | None
"""A value of `meta`."""

_MAGIC = b"SWAV"
_HEADER = struct.Struct("<4sIIIQ")
_CHECKSUM = slice(12, 16)
_ALIGNMENT = 64
_MAX_TABLE = 2**20
_MAX_DIMS = 16
_MAX_TEXT = 200
_DTYPES = {
    dtype.str: dtype
    for dtype in map(np.dtype, ("?", "i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8"))
} | {dtype.str: dtype for dtype in map(np.dtype, ("<f2", "<f4", "<f8"))}


class Packed(NamedTuple):
    """What a message says.

    Attributes:
        kind: What it is about.
        columns: Arrays by name, which are views of the message and cannot be written.
        meta: Plain values by name.
    """

    kind: str
    columns: dict[str, Array]
    meta: dict[str, Plain]


def pack(
    kind: str, columns: Mapping[str, Array] | None = None, meta: Mapping[str, Plain] | None = None
) -> bytes:
    """The bytes of a message.

    Args:
        kind: What it is about, such as "unroll".
        columns: Arrays of flags, integers and floats by name.
        meta: Plain values by name.

    Raises:
        TypeError: An array or a value is of another type.
        ValueError: A name is empty or too long, or there is more than a table can hold.

    Example:
        >>> message = pack("step", {"rewards": np.ones(3, np.float32)}, {"version": 7})
        >>> unpack(message).columns["rewards"]
        array([1., 1., 1.], dtype=float32)
    """
    arrays = {name: _plain_array(name, array) for name, array in (columns or {}).items()}
    for name in (kind, *arrays, *(meta or {})):
        if not _is_name(name):
            raise ValueError(f"names must have 1 to {_MAX_TEXT} characters, got {name!r}")
    for name, value in (meta or {}).items():
        if not _is_plain(value):
            raise TypeError(f"meta {name!r} must be a plain value, got {value!r}")
    table = json.dumps(
        [kind, dict(meta or {}), [[name, x.dtype.str, x.shape] for name, x in arrays.items()]],
        separators=(",", ":"),
    ).encode()
    if len(table) > _MAX_TABLE:
        raise ValueError(f"names and values must take {_MAX_TABLE} bytes, got {len(table)}")
    parts: list[Any] = [table]
    length = _HEADER.size + len(table)
    for array in arrays.values():
        parts += [bytes(-length % _ALIGNMENT), array.reshape(-1).view(np.uint8)]
        length += -length % _ALIGNMENT + array.nbytes
    checksum = zlib.crc32(_HEADER.pack(_MAGIC, VERSION, len(table), 0, length))
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return b"".join([_HEADER.pack(_MAGIC, VERSION, len(table), checksum, length), *parts])


def unpack(data: bytes | memoryview, *, limit: int = LIMIT, kind: str | None = None) -> Packed:
    """What a message says, after everything that it claims was compared with its length.

    Args:
        data: The message.
        limit: Bytes that it may have.
        kind: The kind that it must be of; any when None.

    Raises:
        WireError: It is no message, of another version, cut, changed on its way, too large, of
            another kind, or its table does not describe it.
    """
    table_length = _check_header(data, limit)
    said = _table(bytes(data[_HEADER.size : _HEADER.size + table_length]))
    packed = Packed(said[0], {}, said[1])
    if kind is not None and packed.kind != kind:
        raise WireError(f"expected a message of kind {kind!r}, got {_shown(packed.kind)}")
    first = _HEADER.size + table_length
    places = []
    for name, dtype, shape in said[2]:
        first += -first % _ALIGNMENT
        places.append((name, dtype, shape, first))
        # Python's integers do not overflow, and lengths are compared before anything is made.
        first += dtype.itemsize * math.prod(shape)
        if max(first, dtype.itemsize * math.prod(filter(None, shape))) > len(data):
            raise WireError(
                f"column {_shown(name)} of {dtype} {shape} must end within the {len(data)} bytes "
                f"of the message, got an end at {first}"
            )
    if first != len(data):
        raise WireError(f"the columns must fill the {len(data)} bytes of the message, got {first}")
    for name, dtype, shape, first in places:
        column: Array = np.frombuffer(data, dtype, math.prod(shape), min(first, len(data) - 1))
        column.flags.writeable = False
        packed.columns[name] = column.reshape(shape)
    return packed


def _check_header(data: bytes | memoryview, limit: int) -> int:
    """The length of the table, of a message that is whole."""
    if len(data) > limit:
        raise WireError(f"a message must have at most {limit} bytes, got {len(data)}")
    if len(data) < _HEADER.size:
        raise WireError(f"a message must have at least {_HEADER.size} bytes, got {len(data)}")
    magic, version, table_length, checksum, length = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise WireError(f"a message must begin with {_MAGIC!r}, got {magic!r}")
    if version != VERSION:
        raise WireError(f"messages must be of version {VERSION}, got {version}")
    if length != len(data):
        raise WireError(f"a message of {length} bytes must be whole, got {len(data)} bytes")
    if table_length > min(_MAX_TABLE, length - _HEADER.size):
        raise WireError(
            f"the table must have at most {min(_MAX_TABLE, length - _HEADER.size)} bytes, "
            f"got {table_length}"
        )
    bare = _HEADER.pack(magic, version, table_length, 0, length)
    found = zlib.crc32(memoryview(data)[_HEADER.size :], zlib.crc32(bare))
    if found != checksum:
        raise WireError(f"the checksum must be {checksum:08x}, got {found:08x}")
    return int(table_length)


def _table(
    text: bytes,
) -> tuple[str, dict[str, Plain], list[tuple[str, np.dtype[Any], tuple[int, ...]]]]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the table must be JSON: {type(error).__name__}") from None
    match said:
        case [kind, {} as meta, [*columns]] if _is_name(kind):
            pass
        case _:
            raise WireError(f"the table must be a kind, values and columns, got {_shown(said)}")
    for name, value in meta.items():
        if not _is_name(name) or not _is_plain(value):
            raise WireError(f"meta must be plain values by name, got {_shown({name: value})}")
    found = [_column(column) for column in columns]
    if len({name for name, _, _ in found}) < len(found):
        raise WireError(f"the columns must have different names, got {_shown(columns)}")
    return kind, meta, found


def _column(said: Any) -> tuple[str, np.dtype[Any], tuple[int, ...]]:
    match said:
        case [name, str(dtype), [*shape]] if _is_name(name):
            pass
        case _:
            raise WireError(f"a column must be a name, a dtype and a shape, got {_shown(said)}")
    if dtype not in _DTYPES:
        raise WireError(
            f"the dtype of {_shown(name)} must be one of {', '.join(_DTYPES)}, got {_shown(dtype)}"
        )
    sizes_are = all(type(size) is int and size >= 0 for size in shape)
    if len(shape) > _MAX_DIMS or not sizes_are:
        raise WireError(
            f"the shape of {_shown(name)} must be at most {_MAX_DIMS} sizes, got {_shown(shape)}"
        )
    return name, _DTYPES[dtype], tuple(shape)


def _plain_array(name: str, array: Array) -> Array:
    """The array, little-endian and without gaps."""
    array = np.asarray(array)
    if array.dtype.kind in "biuf":
        array = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
    if array.dtype.str not in _DTYPES or array.ndim > _MAX_DIMS:
        raise TypeError(
            f"column {name!r} must be an array of flags, integers or floats with at most "
            f"{_MAX_DIMS} dimensions, got {array.dtype} with {array.ndim}"
        )
    return array


def _is_name(name: Any) -> TypeGuard[str]:
    return isinstance(name, str) and 0 < len(name) <= _MAX_TEXT


def _is_plain(value: Any) -> bool:
    if type(value) is int:
        return -(2**63) <= value < 2**64
    return value is None or type(value) in (float, str, bool)


def _shown(said: Any) -> str:
    """What a message said, short and harmless."""
    text = printable(repr(said), lines=False)
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."
