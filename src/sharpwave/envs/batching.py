"""Batches of what single environments return, checked as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np

from sharpwave.types import Array, Nested

__all__ = ["BadRowError", "batched", "fitting"]


class BadRowError(ValueError):
    """Raised when a result of environment `index` does not fit its space."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


def batched(leaf_spaces: Nested, rows: list[Nested]) -> Nested:
    """Observations of N environments as one, [N, ...] in each leaf, in fresh memory.

    Args:
        leaf_spaces: A tree of the spaces of the leaves.
        rows: N observations.

    Raises:
        BadRowError: An observation has other keys, another shape or dtype than its space.
    """
    if isinstance(leaf_spaces, dict):
        return {key: batched(leaf_spaces[key], _inner(rows, key)) for key in leaf_spaces}
    if isinstance(leaf_spaces, tuple):
        return tuple(batched(leaf_spaces[i], _inner(rows, i)) for i in range(len(leaf_spaces)))
    return _stacked(rows, leaf_spaces.shape, leaf_spaces.dtype)


def _stacked(rows: list[Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    # Most steps fit, and are joined in one call; only where they do not is each row looked at.
    if shape == ():
        joined = np.array(rows)
        if joined.dtype == dtype and joined.shape == (len(rows),):
            return joined
    elif [getattr(row, "shape", None) for row in rows].count(shape) == len(rows):
        joined = np.concatenate(rows)
        if joined.dtype == dtype:
            return joined.reshape(len(rows), *shape)
    stacked = np.empty((len(rows), *shape), dtype)
    i = 0
    try:
        for i, row in enumerate(rows):
            stacked[i] = fitting(row, shape, dtype, "observation")
    except ValueError as error:
        raise BadRowError(i, str(error)) from error
    return stacked


def fitting(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> Array:
    """The value as an array of this shape, of a dtype that goes into this one.

    Raises:
        ValueError: It does not fit; `name` says what it is.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} must have shape {shape}: {error}") from error
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise ValueError(f"{name} must be of dtype {dtype}, got {array.dtype}")
    return array


def _inner(rows: list[Nested], key: str | int) -> list[Any]:
    inner: list[Any] = []
    try:
        inner.extend(row[key] for row in rows)
    except (KeyError, IndexError, TypeError) as error:
        message = f"observation must have an entry {key!r}"
        raise BadRowError(len(inner), message) from error
    return inner
