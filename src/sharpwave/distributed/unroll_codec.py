"""Unrolls as messages: what a learner needs of them, and nothing that it computes by itself."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from sharpwave.collect import Rollout
from sharpwave.distributed.codec import LIMIT, pack, unpack
from sharpwave.distributed.fleet import Unroll
from sharpwave.errors import WireError
from sharpwave.types import Array, Nested

__all__ = ["unroll_of_bytes", "unroll_to_bytes"]

_KIND = "unroll"
_OF_EPISODES = ("episode_returns", "episode_lengths", "successes")
_COMPUTED = ("values", "next_values", "advantages", "returns")
"""Learners value unrolls by weights that actors do not have yet."""


def unroll_to_bytes(unroll: Unroll) -> bytes:
    """The message of an unroll, without the values of its actor."""
    columns = {name: getattr(unroll, name) for name in _OF_EPISODES}
    for field in fields(Rollout):
        nest = getattr(unroll.rollout, field.name)
        if field.name not in _COMPUTED and nest is not None:
            columns.update(_flattened(nest, f"rollout.{field.name}"))
    return pack(_KIND, columns, {"actor": unroll.actor, "version": unroll.version})


def unroll_of_bytes(data: bytes, *, limit: int = LIMIT) -> Unroll:
    """The unroll of a message; its arrays are views of it.

    Args:
        data: What `unroll_to_bytes` returned.
        limit: Bytes that it may have.

    Raises:
        WireError: It is no message, or no unroll.
    """
    packed = unpack(data, limit=limit, kind=_KIND)
    sent = [field.name for field in fields(Rollout) if field.name not in _COMPUTED]
    known = {*_OF_EPISODES, *(f"rollout.{name}" for name in sent)}
    own: dict[str, Any] = {}
    for name, column in packed.columns.items():
        field = name if name in _OF_EPISODES else ".".join(name.split(".")[:2])
        if field not in known:
            raise WireError(f"an unroll has no column {name!r}")
        own.setdefault(field, {})[name[len(field) :]] = column
    nests = {field: _nested(columns) for field, columns in own.items()}
    episodes = [nests.pop(name, None) for name in _OF_EPISODES]
    steps: dict[str, Any] = {name.removeprefix("rollout."): nest for name, nest in nests.items()}
    rewards = steps.get("rewards")
    if not isinstance(rewards, np.ndarray) or rewards.ndim != 2:
        raise WireError("an unroll must have rewards [T, N]")
    nothing: Any = np.broadcast_to(np.float32(0), rewards.shape)
    numbers = [packed.meta.get(name) for name in ("actor", "version")]
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise WireError(f"an unroll must have numbers of its actor and version, got {packed.meta}")
    try:
        rollout = Rollout(**dict.fromkeys(_COMPUTED, nothing), **steps)
    except TypeError as error:
        raise WireError(f"an unroll must have all columns: {error}") from None
    if any(column is None for column in episodes):
        raise WireError(f"an unroll must have the columns {', '.join(_OF_EPISODES)}")
    return Unroll(*numbers, rollout, *episodes)  # type: ignore[arg-type, call-arg]


def _flattened(nest: Nested, path: str) -> dict[str, Array]:
    """The leaves of a nest by their dotted paths; parts of a tuple are numbered in brackets."""
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
    """The nest whose leaves have these paths, each of which begins with a dot or is empty."""
    if "" in columns:
        if len(columns) > 1:
            raise WireError(f"a column must be an array or a nest, got both at {list(columns)[:4]}")
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
