"""Serialization of unrolls as messages: columns of arrays, nested ones by dotted names."""

from __future__ import annotations

from typing import Any

import numpy as np

from sharpwave.distributed.codec import LIMIT, Packed, Plain, pack, unpack
from sharpwave.distributed.fleet import OF_EPISODES, OF_STEPS, Unroll
from sharpwave.errors import WireError
from sharpwave.types import Array, Nested

__all__ = ["UNROLL", "unroll_of", "unroll_of_bytes", "unroll_to_bytes"]

UNROLL = "unroll"
"""The kind of these messages."""
_NESTED = ("obs", "last_obs", "final_obs", "extra")


def unroll_to_bytes(unroll: Unroll, **meta: Plain) -> bytes:
    """Serialize an unroll, without the values that its actor estimated.

    Args:
        unroll: The unroll.
        **meta: Plain values beside it.
    """
    columns: dict[str, Array] = {}
    for name, nest in unroll.columns().items():
        columns.update(_flattened(nest, name))
    return pack(UNROLL, columns, {"actor": unroll.actor, "version": unroll.version, **meta})


def unroll_of_bytes(data: bytes, *, limit: int = LIMIT) -> Unroll:
    """Deserialize an unroll; its arrays are views of the message.

    Args:
        data: Message that `unroll_to_bytes` returned.
        limit: Bytes that it may have.

    Raises:
        WireError: It is no message, or no unroll.
    """
    return unroll_of(unpack(data, limit=limit, kind=UNROLL))


def unroll_of(packed: Packed) -> Unroll:
    """The unroll that a message of that kind says.

    Raises:
        WireError: Something is missing or unknown. Shapes are not looked at: see `UnrollSchema`.
    """
    leaves: dict[str, dict[str, Array]] = {}
    for name, column in packed.columns.items():
        field = name.partition(".")[0]
        if field not in OF_STEPS and field not in OF_EPISODES:
            raise WireError(f"an unroll has no column {name!r}")
        leaves.setdefault(field, {})[name[len(field) :]] = column
    columns = {field: _nested(parts) for field, parts in leaves.items()}
    actor, version = (packed.meta.get(name) for name in ("actor", "version"))
    if not (type(actor) is int and type(version) is int and min(actor, version) >= 0):
        raise WireError(f"an unroll must have numbers of its actor and version, got {packed.meta}")
    for name, column in columns.items():
        if name not in _NESTED and not isinstance(column, np.ndarray):
            raise WireError(f"{name} of an unroll must be an array, got a tree of arrays")
    if "rewards" not in columns or isinstance(columns.get("extra"), np.ndarray | tuple):
        raise WireError("an unroll must have rewards, and columns by name in extra")
    try:
        return Unroll.of_columns(actor, version, columns)
    except TypeError as error:
        raise WireError(f"an unroll must have all columns: {error}") from None


def _flattened(nest: Nested, path: str) -> dict[str, Array]:
    """The leaves of a tree by their dotted paths; parts of a tuple are numbered in brackets."""
    if isinstance(nest, dict):
        parts = [(_escaped(key), part) for key, part in nest.items()]
    elif isinstance(nest, tuple):
        parts = [(f"[{number}]", part) for number, part in enumerate(nest)]
    else:
        return {path: nest}
    if not parts:
        raise ValueError(f"{path} must have leaves, got an empty {type(nest).__name__}")
    return {
        name: leaf
        for key, part in parts
        for name, leaf in _flattened(part, f"{path}.{key}").items()
    }


def _nested(columns: dict[str, Array]) -> Nested:
    """The tree whose leaves have these paths, each of which begins with a dot or is empty."""
    if "" in columns:
        if len(columns) > 1:
            raise WireError(f"a column must be an array or a tree, got both at {list(columns)[:4]}")
        return columns[""]
    parts: dict[str, dict[str, Array]] = {}
    for path, column in columns.items():
        key, dot, rest = path[1:].partition(".")
        parts.setdefault(key, {})[dot + rest] = column
    inner = {key: _nested(part) for key, part in parts.items()}
    if any(key.startswith("[") for key in inner):
        if list(inner) != [f"[{number}]" for number in range(len(inner))]:
            raise WireError(f"parts of a tuple must be numbered, got {list(inner)[:4]}")
        return tuple(inner.values())
    return {_unescaped(key): part for key, part in inner.items()}


def _escaped(key: Any) -> str:
    text = str(key).replace("%", "%25").replace(".", "%2E")
    return f"%5B{text[1:]}" if text.startswith("[") else text


def _unescaped(key: str) -> str:
    return key.replace("%5B", "[").replace("%2E", ".").replace("%25", "%")
