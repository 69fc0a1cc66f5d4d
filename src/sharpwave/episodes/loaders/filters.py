"""Conditions on values: equal to one, one of several, or whatever a function says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import numpy as np

from sharpwave.core.suggest import did_you_mean
from sharpwave.episodes.loaders.reader import FieldLike
from sharpwave.types import Array

__all__ = ["Condition", "Filters", "holds", "matching"]

Condition: TypeAlias = Any
"""A value, several of them (list, tuple, set, range or array), or a function of the column."""

Filters: TypeAlias = Mapping[str, Condition]
"""Conditions by the name of the field; all of them must hold."""


def matching(
    argument: str,
    filters: Filters | None,
    known: Mapping[str, FieldLike],
    columns: Mapping[str, Array],
    n: int,
) -> Array:
    """Mask of the rows that meet all conditions.

    Args:
        argument: The name of `filters`, for errors.
        filters: Conditions by name.
        known: The fields there are.
        columns: [n, ...] Their values, at least those that the filters name.
        n: Number of rows.

    Returns:
        [n] bool.

    Raises:
        TypeError: `filters` is not a dict.
        ValueError: A name is unknown, or a condition does not fit its field.
    """
    found = np.ones(n, np.bool_)
    check_names(argument, filters, known)
    for name, condition in (filters or {}).items():
        found &= holds(f"{argument}[{name!r}]", columns[name], condition)
    return found


def check_names(argument: str, filters: Filters | None, known: Mapping[str, FieldLike]) -> None:
    """Raise unless `filters` is None or a dict of known fields."""
    if filters is None:
        return
    if not isinstance(filters, Mapping):
        raise TypeError(f"{argument} must be a dict, got {type(filters).__name__}")
    for name in filters:
        if name not in known:
            hint = did_you_mean(str(name), known)
            raise ValueError(f"{argument} has no field {name!r} to look at{hint}")


def holds(argument: str, column: Array, condition: Condition) -> Array:
    """Mask of the rows of a column for which a condition holds.

    One value means equality and several mean any of them; which of the two is told by the shape. A
    bool asks whether values are different from zero.

    Args:
        argument: Name of the condition in error messages.
        column: [n, *shape]
        condition: A value of the column's shape, a collection of such values, or a function from
            the column to a bool array [n].

    Returns:
        [n] bool.

    Example:
        >>> column = np.array([3, 1, 2, 3])
        >>> holds("c", column, 3).tolist(), holds("c", column, {1, 2}).tolist()
        ([True, False, False, True], [False, True, True, False])
        >>> holds("c", column, lambda c: c > 1).tolist()
        [True, False, True, True]
    """
    if callable(condition):
        return _asked(argument, column, condition)
    values = _as_values(argument, condition)
    shape = column.shape[1:]
    if values.dtype == np.bool_:
        column = column.astype(np.bool_)
    if values.shape == shape:
        equal: Array = column == _cast(values, column.dtype)
        equal &= _representable(values, column.dtype)
        whole: Array = np.all(equal, axis=tuple(range(1, column.ndim)))
        return whole
    if values.size == 0:
        return np.zeros(len(column), np.bool_)
    if values.shape[1:] != shape:
        raise ValueError(
            f"{argument} must be a value of shape {shape}, several of them or a function, "
            f"got shape {values.shape}"
        )
    found = np.zeros(len(column), np.bool_)
    if shape == ():
        return np.isin(column, _cast(values[_representable(values, column.dtype)], column.dtype))
    for value in values:
        found |= holds(argument, column, value)
    return found


def _asked(argument: str, column: Array, condition: Callable[[Array], Any]) -> Array:
    shown = column.view()
    shown.flags.writeable = False
    answer = np.asarray(condition(shown))
    if answer.shape != (len(column),) or answer.dtype != np.bool_:
        raise ValueError(
            f"{argument} must return a bool array of shape ({len(column)},), "
            f"got {answer.dtype} of shape {answer.shape}"
        )
    return answer


def _as_values(argument: str, condition: Condition) -> Array:
    several = isinstance(condition, Collection) and not isinstance(condition, np.ndarray)
    if several and not isinstance(condition, str | bytes | Mapping) and not _is_tensor(condition):
        condition = list(condition)
    try:
        values = np.asarray(condition)
    except ValueError:
        values = np.asarray(None)
    if values.dtype.kind not in "biuf":
        raise TypeError(
            f"{argument} must be a number, several of them or a function, got {condition!r}"
        )
    return values


def _is_tensor(value: object) -> bool:
    return hasattr(value, "__array__") or hasattr(value, "__dlpack__")


def _cast(values: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(all="ignore"):
        return values.astype(dtype)


def _representable(values: Array, dtype: np.dtype[Any]) -> Array:
    """Mask of the values that a column of this dtype can hold; floats are rounded as stored."""
    if dtype.kind == "f":
        return np.ones(values.shape, np.bool_)
    with np.errstate(all="ignore"):
        same: Array = values.astype(dtype) == values
    return same
