"""Trees of arrays and plain values as JSON, with the name of an array where one stood."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sharpwave.storage.checkpoints.tensors import RawTensor, is_tensor

_ARRAY = "$array"
_TUPLE = "$tuple"
_FLOAT = "$float"


def to_json(value: Any, name: str, leaves: dict[str, Any]) -> Any:
    """The tree in JSON; arrays and tensors are put into `leaves` under dotted names.

    Raises:
        TypeError: It holds something else than arrays, tensors, numbers, strings and None.
    """
    if is_tensor(value) or isinstance(value, np.ndarray | RawTensor):
        while name in leaves:  # {"a.b": ...} beside {"a": {"b": ...}}
            name += "_"
        leaves[name] = value
        return {_ARRAY: name}
    if isinstance(value, dict):
        return {str(key): to_json(inner, f"{name}.{key}", leaves) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        parts = [to_json(inner, f"{name}.{i}", leaves) for i, inner in enumerate(value)]
        return {_TUPLE: parts} if isinstance(value, tuple) else parts
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"{name} must be an array, a number, a string or a tree of these, got {value!r}"
    )


def from_json(value: Any, leaf: Callable[[str], Any]) -> Any:
    """The opposite of `to_json`; `leaf` gives the array of a name."""
    if isinstance(value, dict):
        if _ARRAY in value:
            return leaf(value[_ARRAY])
        if _TUPLE in value:
            return tuple(from_json(inner, leaf) for inner in value[_TUPLE])
        if _FLOAT in value:
            return float(value[_FLOAT])
        return {key: from_json(inner, leaf) for key, inner in value.items()}
    if isinstance(value, list):
        return [from_json(inner, leaf) for inner in value]
    return value
