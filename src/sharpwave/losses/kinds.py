"""Tables of the kinds of a loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from sharpwave.core.suggest import did_you_mean

__all__ = ["pick"]

T = TypeVar("T")


def pick(table: Mapping[str, T], name: str, argument: str) -> T:
    """The entry of this name.

    Args:
        table: Entries by name.
        name: What the caller asked for.
        argument: The name of the caller's argument, for the error.

    Returns:
        The entry.

    Raises:
        ValueError: The table has no such name.

    Example:
        >>> pick({"token": 1, "sequence": 2}, "token", "level")
        1
    """
    if name not in table:
        known = ", ".join(table)
        raise ValueError(
            f"{argument} must be one of {known}, got {name!r}{did_you_mean(name, table)}"
        )
    return table[name]
