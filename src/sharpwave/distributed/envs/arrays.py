"""Serialization of arrays, observations and infos as protobuf messages, checked when read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from sharpwave.core.optional import require
from sharpwave.core.tree import leaves, like
from sharpwave.envs.spaces import leaf_spaces
from sharpwave.errors import WireError
from sharpwave.printable import printable
from sharpwave.types import Array, Nested

__all__ = [
    "FlatInfos",
    "ObservationFormat",
    "array_message",
    "array_of",
    "array_of_raw",
    "flat_infos",
    "info_messages",
    "merged",
    "messages",
    "nested_infos",
    "parsed",
    "raw",
]

FlatInfos = dict[tuple[str, ...], Array]
"""Infos by their path: `infos["final_info"]["is_success"]` is at ("final_info", "is_success")."""

_KINDS = "biuf"
_DTYPES = {
    dtype.str: dtype
    for dtype in map(np.dtype, ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"))
} | {dtype.str: dtype for dtype in map(np.dtype, ("f2", "f4", "f8"))}
_DEPTH = 8
_APART = ("final_obs", "_final_obs")
"""Infos that answers have fields of their own for."""
_OF_THE_END = {*_APART, "final_info", "_final_info"}


@cache
def messages() -> Any:
    """The module of the messages.

    Raises:
        ImportError: protobuf is not installed.
    """
    return require("sharpwave.distributed.envs.env_pb2", extra="distributed")


def parsed(kind: Any, data: bytes) -> Any:
    """A message from its bytes.

    Raises:
        WireError: They are no such message.
    """
    try:
        return kind.FromString(data)
    except Exception as error:  # what is raised differs among versions of protobuf
        name = kind.DESCRIPTOR.name
        raise WireError(f"the message must be a {name}, got {len(data)} other bytes") from error


def array_message(array: Array, path: Sequence[str] = ()) -> Any:
    """An array of flags, integers or floats as a message.

    Raises:
        TypeError: It is of another dtype.
    """
    name, dtype = _on_the_wire(array.dtype)
    data = array.astype(dtype, copy=False).tobytes()
    return messages().Array(dtype=name, shape=array.shape, data=data, path=path)


@cache
def _on_the_wire(dtype: np.dtype[Any]) -> tuple[str, np.dtype[Any]]:
    if dtype.kind not in _KINDS:
        raise TypeError(f"arrays must be of flags, integers or floats, got {dtype}")
    little = dtype.newbyteorder("<")
    return little.str, little


def array_of(
    message: Any,
    name: str,
    dtype: np.dtype[Any] | None = None,
    shape: tuple[int, ...] | None = None,
) -> Array:
    """The array of a message, a view of its bytes.

    Args:
        message: The message.
        name: Name of the array in errors.
        dtype: Dtype that it must have; None for any that is supported.
        shape: Shape that it must have; None for any.

    Raises:
        WireError: It is something else, or its bytes are too few or too many.
    """
    came = _DTYPES.get(message.dtype)
    came_shape = tuple(message.shape)
    fits = (dtype is None or came == dtype) and (shape is None or came_shape == shape)
    if came is None or not fits:
        expected = f"{dtype or 'flags, integers or floats'} of shape {shape or '[...]'}"
        said = f"{printable(message.dtype[:20]) or 'nothing'} of shape {came_shape[:8]}"
        raise WireError(f"{name} must be {expected}, got {said}")
    n_bytes = math.prod(came_shape) * came.itemsize
    if len(message.data) != n_bytes or len(came_shape) > 32:
        raise WireError(f"{name} must have {n_bytes} bytes, got {len(message.data)}")
    if came.kind == "b":  # a byte of another value would be a flag that is neither
        flags: Array = np.frombuffer(message.data, np.uint8).reshape(came_shape) != 0
        return flags
    return np.frombuffer(message.data, came).reshape(came_shape)


def raw(array: Array, dtype: np.dtype[Any]) -> bytes:
    """The bytes of an array in a dtype."""
    return array.astype(_on_the_wire(dtype)[1], copy=False).tobytes()


def array_of_raw(data: bytes, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """The array of some bytes, a view of them.

    Raises:
        WireError: They are too few or too many.
    """
    if len(data) != math.prod(shape) * dtype.itemsize:
        expected = f"{math.prod(shape) * dtype.itemsize} bytes, {dtype} of shape {shape}"
        raise WireError(f"{name} must be {expected}, got {len(data)}")
    if dtype.kind == "b":
        flags: Array = np.frombuffer(data, np.uint8).reshape(shape) != 0
        return flags
    return np.frombuffer(data, dtype).reshape(shape)


class ObservationFormat:
    """Serializes observations: the leaves of their space in order.

    Args:
        space: Space of one observation.
    """

    def __init__(self, space: Any) -> None:
        self._structure = leaf_spaces(space)
        self._leaves = list(leaves(self._structure))
        self._is_leaf = not isinstance(self._structure, dict | tuple)

    def to_raw(self, obs: Nested, rows: Any = None) -> list[bytes]:
        """Observations [N, ...], or some rows of them."""
        found = {"": obs} if self._is_leaf else dict(leaves(obs))
        parts = []
        for path, space in self._leaves:
            leaf = np.asarray(found[path])
            parts.append(raw(leaf if rows is None else leaf[rows], space.dtype))
        return parts

    def of_raw(self, came: Sequence[bytes], n: int) -> Nested:
        """Observations [n, ...], views of a message.

        Raises:
            WireError: They do not fit the spaces.
        """
        if len(came) != len(self._leaves):
            raise WireError(f"observations must have {len(self._leaves)} parts, got {len(came)}")
        arrays = [
            array_of_raw(data, f"observation {path}", space.dtype, (n, *space.shape))
            for data, (path, space) in zip(came, self._leaves, strict=True)
        ]
        return arrays[0] if self._is_leaf else like(self._structure, tuple(arrays))


def info_messages(infos: Mapping[str, Any], n: int) -> list[Any]:
    """Those infos that are numbers or flags [n, ...], also in nested dicts; no others travel."""
    if infos.keys() <= _OF_THE_END and not infos.get("final_info"):
        return []  # as in most steps
    return [array_message(array, path) for path, array in _numeric(infos, n, ())]


def _numeric(
    infos: Mapping[str, Any], n: int, path: tuple[str, ...]
) -> Iterable[tuple[tuple[str, ...], Array]]:
    kept = {
        name
        for name, value in infos.items()
        if isinstance(name, str) and (isinstance(value, dict) or _is_numeric(value, n))
    }
    for name in kept:
        whose = name[1:] if name.startswith("_") else name
        owner = infos.get(whose)
        hidden = whose in infos and (whose not in kept or (isinstance(owner, dict) and not owner))
        if hidden or (not path and name in _APART):
            continue
        value, here = infos[name], (*path, name)
        if isinstance(value, dict):
            if len(here) < _DEPTH:
                yield from _numeric(value, n, here)
        else:
            yield here, value


def _is_numeric(value: Any, n: int) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in _KINDS and value.shape[:1] == (n,)


def flat_infos(came: Sequence[Any], n: int) -> FlatInfos:
    """The infos of a message, by path.

    Raises:
        WireError: One is no array of n rows, or two are at the same place.
    """
    found: FlatInfos = {}
    for message in came:
        path = tuple(message.path)
        array = array_of(message, f"info {printable('.'.join(path)[:100])}")
        if not 0 < len(path) <= _DEPTH or path in found or array.shape[:1] != (n,):
            raise WireError(f"infos must be {n} rows at a path each, got {path[:_DEPTH]}")
        found[path] = array
    return found


def merged(parts: Sequence[FlatInfos], sizes: Sequence[int]) -> FlatInfos:
    """The infos of several servers as those of one, [N, ...].

    What only some of them say gets a mask `_name`, as in Gymnasium.

    Raises:
        WireError: They disagree about shapes.
    """
    if len(parts) == 1:
        return {path: array.copy() for path, array in parts[0].items()}
    found: FlatInfos = {}
    ends = np.cumsum(sizes)
    for path in dict.fromkeys(path for part in parts for path in part):
        having = [part[path] for part in parts if path in part]
        shapes = {array.shape[1:] for array in having}
        if len(shapes) > 1:
            raise WireError(f"the info {'.'.join(path)} must have one shape, got {shapes}")
        whole = np.zeros((ends[-1], *shapes.pop()), np.result_type(*having))
        told = np.zeros(ends[-1], np.bool_)
        for part, end, size in zip(parts, ends, sizes, strict=True):
            if path in part:
                whole[end - size : end] = part[path]
                told[end - size : end] = True
        found[path] = whole
        mask = (*path[:-1], f"_{path[-1]}")
        if not told.all() and not path[-1].startswith("_") and not any(mask in p for p in parts):
            found[mask] = told
    return found


def nested_infos(flat: FlatInfos) -> dict[str, Any]:
    """Infos by path as nested dicts.

    Raises:
        WireError: One is at the place of a dict.
    """
    nested: dict[str, Any] = {}
    for path, array in flat.items():
        inner: Any = nested
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise WireError(f"infos must have a dict at {name}, got an array")
        if path[-1] in inner:
            raise WireError(f"infos must have one value at {path[-1]}, got two")
        inner[path[-1]] = array
    return nested
