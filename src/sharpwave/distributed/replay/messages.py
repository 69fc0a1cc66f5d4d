"""Messages between a sharded replay and the server of a shard: requests, answers and errors.

Every request has one answer, in order. Columns of steps have the names of batches; those of ids,
leaves, streams and priorities have names that no field may have.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from sharpwave.buffers.schema import Schema
from sharpwave.distributed.codec import Packed, pack
from sharpwave.distributed.replay.columns import as_columns
from sharpwave.distributed.replay.shard import Description, Drawn, State
from sharpwave.errors import SharpwaveIOError, WireError
from sharpwave.types import Array, BatchDict

__all__ = [
    "IDS",
    "LEAVES",
    "PRIORITIES",
    "SERVICE",
    "STATE",
    "STREAMS",
    "TALK",
    "answer_of",
    "description_of",
    "error_of",
    "failed",
    "number",
    "schema_of",
    "state_of",
    "text",
    "vector",
    "without",
]

SERVICE, TALK = "sharpwave.Replay", "Talk"
IDS, LEAVES, STREAMS, PRIORITIES = "indices", "weights", "streams", "priorities"
STATE = "priority"
_STATE = struct.Struct("<QQddQQQd?")
_ERRORS: dict[str, type[Exception]] = {
    error.__name__: error
    for error in (IndexError, KeyError, MemoryError, PermissionError, TypeError, ValueError)
}


def answer_of(answer: State | Drawn | Description | tuple[int, State]) -> bytes:
    """The message of an answer."""
    if isinstance(answer, State):
        return pack("state", _written(answer))
    if isinstance(answer, Description):
        schema = None if answer.schema is None else json.dumps(answer.schema.to_json())
        return pack("description", meta={**answer._asdict(), "schema": schema})
    if not isinstance(answer, Drawn):
        ignored, state = answer
        return pack("updated", _written(state), {"ignored": ignored})
    columns = _written(answer.state)
    if answer.batch is None:
        return pack("none", columns, {"reason": answer.reason})
    columns |= as_columns(answer.batch)
    columns[IDS] = answer.ids
    if answer.leaves is not None:
        columns[LEAVES] = answer.leaves
    return pack("steps", columns)


def failed(error: Exception) -> bytes:
    """The message of a request that failed, with the error's name and words."""
    kind = "SharpwaveIOError" if isinstance(error, OSError) else type(error).__name__
    return pack(
        "error",
        meta={"error": kind, "said": str(error)[:2000], "errno": getattr(error, "errno", None)},
    )


def error_of(packed: Packed, name: str) -> Exception:
    """The error that a server answered with, with the server's name."""
    kind, said = text(packed, "error"), f"{name}: {text(packed, 'said')}"
    if kind == "WireError":
        return WireError(said)
    if kind == "SharpwaveIOError":
        code = packed.meta.get("errno")
        return SharpwaveIOError(code, said) if isinstance(code, int) else SharpwaveIOError(said)
    return _ERRORS[kind](said) if kind in _ERRORS else RuntimeError(f"{name}: {kind}: {said}")


def state_of(packed: Packed) -> State:
    """Read the state of a shard from a message.

    Raises:
        WireError: The message does not say it.
    """
    column = packed.columns.get(STATE)
    if column is None or column.nbytes != _STATE.size:
        raise WireError(f"{packed.kind} must have a column {STATE} of {_STATE.size} bytes")
    state = State(*_STATE.unpack(column.tobytes()))
    if not (0 <= state.total < math.inf and state.smallest >= 0 and state.max_priority >= 0):
        raise WireError(f"the state of a shard must be of sums and priorities, got {state}")
    return state


def _written(state: State) -> dict[str, Array]:
    """The column of a state, which takes less time than its numbers by name."""
    return {STATE: np.frombuffer(_STATE.pack(*state), np.uint8)}


def description_of(packed: Packed) -> Description:
    """Read the description of a shard from a message.

    Raises:
        WireError: The message does not say it.
    """
    schema, n_envs, alpha = (packed.meta.get(name) for name in ("schema", "n_envs", "alpha"))
    return Description(
        None if schema is None else schema_of(text(packed, "schema")),
        None if n_envs is None else int(number(packed, "n_envs")),
        int(number(packed, "capacity")),
        None if alpha is None else float(number(packed, "alpha")),
        packed.meta.get("squeezes") is True,
    )


def schema_of(written: str) -> Schema:
    """The schema of a text.

    Raises:
        WireError: It is none.
    """
    try:
        return Schema.from_json(json.loads(written))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise WireError(f"schema must be the fields of a step: {error}") from None


def number(packed: Packed, name: str) -> int | float:
    """A number of a message.

    Raises:
        WireError: There is none.
    """
    value = packed.meta.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WireError(f"{packed.kind} must have the number {name}, got {value!r}")
    return value


def text(packed: Packed, name: str) -> str:
    """A text of a message.

    Raises:
        WireError: There is none.
    """
    value = packed.meta.get(name)
    if not isinstance(value, str):
        raise WireError(f"{packed.kind} must have the text {name}, got {value!r}")
    return value


def without(columns: Mapping[str, Array], *names: str) -> BatchDict:
    """The columns but for some."""
    return {name: column for name, column in columns.items() if name not in names}


def vector(packed: Packed, name: str, kinds: str, dtype: Any) -> Array:
    """A column of numbers [N] of a message.

    Args:
        packed: The message.
        name: Name of the column.
        kinds: Kinds of dtype that it may have, as NumPy names them.
        dtype: Dtype that it is converted to.

    Raises:
        WireError: There is none.
    """
    column = packed.columns.get(name)
    if column is None or column.ndim != 1 or column.dtype.kind not in kinds:
        got = "none" if column is None else f"{column.dtype} {column.shape}"
        raise WireError(f"{packed.kind} must have a column {name} [N] of kind {kinds}, got {got}")
    return np.ascontiguousarray(column, dtype)
