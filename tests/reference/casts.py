"""Casts of values to a field of another dtype, one value at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sharpwave.types import Array


def cast(values: Array, dtype: str) -> Array:
    """The values as `dtype`.

    Raises:
        ValueError: If a value does not fit: a fraction, NaN or number out of range into an integer,
            NaN into a bool, a finite number beyond the range of a float.
    """
    result = np.empty(values.shape, dtype)
    for index in np.ndindex(values.shape):
        result[index] = cast_one(values[index].item(), np.dtype(dtype))
    return result


def cast_one(value: Any, dtype: np.dtype[Any]) -> Any:
    """One Python number as `dtype`."""
    if dtype.kind == "b":
        if math.isnan(value):
            raise ValueError(f"{value} is neither true nor false")
        return value != 0
    if dtype.kind in "iu":
        if not math.isfinite(value) or value != int(value):
            raise ValueError(f"{value} is no integer")
        limits = np.iinfo(dtype)
        if not limits.min <= int(value) <= limits.max:
            raise ValueError(f"{value} is out of the range of {dtype}")
        return int(value)
    with np.errstate(all="ignore"):
        rounded = np.asarray(value).astype(dtype)[()]
    if np.isinf(rounded) and not math.isinf(value):
        raise ValueError(f"{value} is out of the range of {dtype}")
    return rounded
