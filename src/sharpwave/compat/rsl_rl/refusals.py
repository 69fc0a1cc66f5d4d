"""Errors of what rsl_rl has and this package has not, which say where to read about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sharpwave.core.suggest import did_you_mean

__all__ = ["PAGE", "absent", "check_entries", "refuse"]

PAGE = "docs/coming_from_rsl_rl.md"
"""The page that says what differs."""


def refuse(name: str, value: Any, wanted: str) -> ValueError:
    """The error of an entry that has no counterpart.

    Args:
        name: Name of the entry.
        value: The value given.
        wanted: What is possible, in words.
    """
    return ValueError(f"{name} must be {wanted} here, got {value!r}: see {PAGE}")


def absent(owner: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error of an attribute of rsl_rl's that is not there."""
    return AttributeError(
        f"{owner} has no attribute {name!r} here{did_you_mean(name, known)}; "
        f"{PAGE} says which of rsl_rl's names there are"
    )


def check_entries(given: Mapping[str, Any], known: Iterable[str], owner: str) -> None:
    """Raise where a configuration has an entry that nobody knows, with the nearest one."""
    names = sorted(known)
    for name in given:
        if name not in names:
            raise ValueError(
                f"{owner} has no entry {name!r}{did_you_mean(name, names)}: see {PAGE}"
            )
