"""Serialization of messages between machines: a header, JSON and raw arrays, never pickled code.

A message is a header of fixed length, its form, its meta, and the columns, each of which begins at
a multiple of 64 bytes:

    magic | version | length of form | length of meta | checksum | length | form | meta | columns

Form and meta are JSON. The form has the kind of the message, and name, dtype and shape of each
column; the meta has plain values. The checksum is over everything else.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from sharpwave.errors import WireError
from sharpwave.printable import printable
from sharpwave.types import Array

__all__ = ["LIMIT", "VERSION", "Packed", "Plain", "pack", "unpack"]

VERSION = 1
"""Version of the message format; other ones are refused."""
LIMIT = 64 * 2**20
"""Bytes of the largest message that is taken where nobody says anything else."""

Plain = int | float | str | bool | None
"""A value of `meta`."""

_MAGIC = b"SWAV"
_HEADER = struct.Struct("<4sIIIIQ")
_ALIGNMENT = 64
_MAX_TEXTS = 2**20
_MAX_DIMS = 16
_MAX_NAME = 200
_FORMS, _MAX_KNOWN = 256, 4096
"""Forms that are remembered, and the bytes of the longest of them."""
_DTYPES = {
    dtype.str: dtype
    for dtype in map(np.dtype, ("?", "i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8"))
} | {dtype.str: dtype for dtype in map(np.dtype, ("<f2", "<f4", "<f8"))}


class Packed(NamedTuple):
    """Contents of a message.

    Attributes:
        kind: Kind of the message.
        columns: Arrays by name, which are views of the message and cannot be written.
        meta: Plain values by name.
    """

    kind: str
    columns: dict[str, Array]
    meta: dict[str, Plain]


def pack(
    kind: str, columns: Mapping[str, Array] | None = None, meta: Mapping[str, Plain] | None = None
) -> bytes:
    """Serialize a message.

    Args:
        kind: Kind of the message, such as "unroll".
        columns: Arrays of flags, integers and floats by name.
        meta: Plain values by name.

    Raises:
        TypeError: An array or a value is of another type.
        ValueError: A name is empty or too long, or names and values take too much.

    Example:
        >>> message = pack("step", {"rewards": np.ones(3, np.float32)}, {"version": 7})
        >>> unpack(message).columns["rewards"]
        array([1., 1., 1.], dtype=float32)
    """
    meta = meta or {}
    arrays = {name: _plain_array(name, array) for name, array in (columns or {}).items()}
    form = _form_text(kind, tuple((name, x.dtype.str, x.shape) for name, x in arrays.items()))
    for name, value in meta.items():
        if not _is_name(name) or not _is_plain(value):
            raise TypeError(f"meta must be plain values by name, got {name!r}: {value!r:.200}")
    texts = [form, json.dumps(dict(meta), separators=(",", ":")).encode()]
    lengths = [len(text) for text in texts]
    if sum(lengths) > _MAX_TEXTS:
        raise ValueError(f"names and values must take {_MAX_TEXTS} bytes, got {sum(lengths)}")
    parts: list[Any] = texts
    length = _HEADER.size + sum(lengths)
    for array in arrays.values():
        parts += [bytes(-length % _ALIGNMENT), array.reshape(-1).view(np.uint8)]
        length += -length % _ALIGNMENT + array.nbytes
    bare = _HEADER.pack(_MAGIC, VERSION, *lengths, 0, length)
    message = bytearray(b"".join([bare, *parts]))
    _HEADER.pack_into(message, 0, _MAGIC, VERSION, *lengths, zlib.crc32(message), length)
    return bytes(message)


def unpack(data: bytes | memoryview, *, limit: int = LIMIT, kind: str | None = None) -> Packed:
    """Deserialize a message, once everything that it claims was compared with its length.

    Args:
        data: The message.
        limit: Bytes that it may have.
        kind: The kind that it must be of; any when None.

    Raises:
        WireError: It is no message, of another version, cut, changed on its way, too large, of
            another kind, or its form does not describe it.
    """
    n_form, n_meta = _check_header(data, limit)
    first = _HEADER.size + n_form
    text = bytes(data[_HEADER.size : first])
    form = (_known_form if n_form <= _MAX_KNOWN else _form_of)(text)
    if kind is not None and form.kind != kind:
        raise WireError(f"expected a message of kind {kind!r}, got {_shown(form.kind)}")
    meta = _meta_of(bytes(data[first : first + n_meta]))
    first += n_meta
    if form.places:
        first += -first % _ALIGNMENT
    for place in form.places if max(first + form.end, form.most) > len(data) else ():
        if max(first + place.end, place.most) > len(data):
            raise WireError(
                f"column {_shown(place.name)} of {place.dtype} {place.shape} must end within the "
                f"{len(data)} bytes of the message, got an end at {first + place.end}"
            )
    if first + form.end != len(data):
        raise WireError(
            f"the columns must fill the {len(data)} bytes of the message, got {first + form.end}"
        )
    columns: dict[str, Array] = {}
    for name, dtype, shape, begin, end, _ in form.places:
        if begin == end:
            column: Array = np.empty(shape, dtype)
        else:
            column = np.ndarray(shape, dtype, data, first + begin)
        column.flags.writeable = False
        columns[name] = column
    return Packed(form.kind, columns, meta)


class _Place(NamedTuple):
    """A column, and where it lies after the first one's begin."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    end: int
    most: int
    """Bytes that it would have if no size were 0."""


class _Form(NamedTuple):
    kind: str
    places: tuple[_Place, ...]
    end: int
    """Offset at which the last column ends."""
    most: int
    """Of all columns."""


def _check_header(data: bytes | memoryview, limit: int) -> tuple[int, int]:
    """The lengths of form and meta, of a message that is whole."""
    if len(data) > limit:
        raise WireError(f"a message must have at most {limit} bytes, got {len(data)}")
    if len(data) < _HEADER.size:
        raise WireError(f"a message must have at least {_HEADER.size} bytes, got {len(data)}")
    magic, version, n_form, n_meta, checksum, length = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise WireError(f"a message must begin with {_MAGIC!r}, got {magic!r}")
    if version != VERSION:
        raise WireError(f"messages must be of version {VERSION}, got {version}")
    if length != len(data):
        raise WireError(f"a message of {length} bytes must be whole, got {len(data)} bytes")
    most = min(_MAX_TEXTS, length - _HEADER.size)
    if n_form + n_meta > most:
        raise WireError(f"form and meta must have at most {most} bytes, got {n_form + n_meta}")
    bare = _HEADER.pack(magic, version, n_form, n_meta, 0, length)
    found = zlib.crc32(memoryview(data)[_HEADER.size :], zlib.crc32(bare))
    if found != checksum:
        raise WireError(f"the checksum must be {checksum:08x}, got {found:08x}")
    return int(n_form), int(n_meta)


@lru_cache(_FORMS)
def _form_text(kind: str, columns: tuple[tuple[str, str, tuple[int, ...]], ...]) -> bytes:
    for name in (kind, *(name for name, _, _ in columns)):
        if not _is_name(name):
            raise ValueError(f"names must have 1 to {_MAX_NAME} characters, got {name!r}")
    return json.dumps([kind, columns], separators=(",", ":")).encode()


def _form_of(text: bytes) -> _Form:
    said = _json(text, "form")
    match said:
        case [kind, [*columns]] if _is_name(kind):
            pass
        case _:
            raise WireError(f"the form must be a kind and columns, got {_shown(said)}")
    places: list[_Place] = []
    end = 0
    for name, dtype, shape in map(_column, columns):
        begin = end + -end % _ALIGNMENT
        # Python's integers do not overflow, and lengths are compared before anything is made.
        end = begin + dtype.itemsize * math.prod(shape)
        most = dtype.itemsize * math.prod(filter(None, shape))
        places.append(_Place(name, dtype, shape, begin, end, most))
    if len({place.name for place in places}) < len(places):
        raise WireError(f"the columns must have different names, got {_shown(columns)}")
    return _Form(kind, tuple(places), end, max((place.most for place in places), default=0))


_known_form = lru_cache(_FORMS)(_form_of)
"""Most messages have a form that one before them had."""


def _meta_of(text: bytes) -> dict[str, Plain]:
    meta = _json(text, "meta")
    if not isinstance(meta, dict):
        raise WireError(f"meta must be plain values by name, got {_shown(meta)}")
    for name, value in meta.items():
        if not _is_name(name) or not _is_plain(value):
            raise WireError(f"meta must be plain values by name, got {_shown({name: value})}")
    return meta


def _json(text: bytes, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the {what} must be JSON: {type(error).__name__}") from None


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
    return isinstance(name, str) and 0 < len(name) <= _MAX_NAME


def _is_plain(value: Any) -> bool:
    if type(value) is int:
        return -(2**63) <= value < 2**64
    return value is None or type(value) in (float, str, bool)


def _shown(said: Any) -> str:
    """A value from a message, shortened and printable, for errors."""
    text = printable(repr(said), lines=False)
    return text if len(text) <= _MAX_NAME else f"{text[:_MAX_NAME]}..."
