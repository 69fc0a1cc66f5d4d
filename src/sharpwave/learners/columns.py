"""Columns of a learner's own that loops store with its steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sharpwave.buffers.schema import STEP, Field, Schema

if TYPE_CHECKING:
    from sharpwave.learners.learner import Learner

__all__ = ["check_columns", "declared_columns"]

TAKEN = frozenset({*STEP, "done", "done_reasons", "infos", "restarted"})
"""Names that one buffer or another has for something else, beside those that a schema reserves."""


def declared_columns(learner: Learner) -> dict[str, Field]:
    """The columns that a learner declares in `extra_columns`, by name.

    Raises:
        TypeError: A column has no dtype and shape.
        ValueError: A name stands for something else in a step.
    """
    given = learner.extra_columns()
    if not given:
        return {}
    whose = f"extra_columns of {type(learner).__name__}"
    try:
        fields = Schema(given).fields
    except (TypeError, ValueError) as error:
        raise type(error)(f"{whose}: {error}") from error
    declared: dict[str, Field] = {}
    for name, field in fields.items():
        if name in TAKEN:
            raise ValueError(f"{whose} must not use the name {name!r}, which a step has already")
        if not isinstance(field, Field):
            raise TypeError(f"{whose} must be a dtype and a shape, got {field} for {name!r}")
        declared[name] = field
    return declared


def check_columns(
    given: Mapping[str, Any], declared: Mapping[str, Field], n: int, learner: Learner, giver: str
) -> None:
    """Check that columns are there as a learner declares them; others may be there too.

    Args:
        given: Arrays or tensors by name.
        declared: What `declared_columns` gave.
        n: Rows of a column.
        learner: Who declares them.
        giver: Where they come from, in words.

    Raises:
        ValueError: A column is missing, or has another dtype or shape.
    """
    for name, field in declared.items():
        wanted = f"{field.dtype} {[n, *field.shape]}"
        found = _form(given[name]) if name in given else f"only {sorted(given)}"
        if found != wanted:
            raise ValueError(
                f"{giver} must give the extra column {name!r} as {wanted}, like extra_columns of "
                f"{type(learner).__name__} declares it, got {found}"
            )


def _form(column: Any) -> str:
    """Dtype and shape of an array or a tensor, in words."""
    if not hasattr(column, "dtype"):
        return f"a {type(column).__name__}"
    return f"{str(column.dtype).removeprefix('torch.')} {list(column.shape)}"
