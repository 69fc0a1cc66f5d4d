"""Errors of what SB3 has and this package has not, which say where to read about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sharpwave.core.suggest import did_you_mean

__all__ = ["PAGE", "absent", "check_names", "refuse"]

PAGE = "docs/coming_from_sb3.md"
"""The page that says what differs."""


def refuse(name: str, value: Any, wanted: str) -> ValueError:
    """The error of an argument that has no counterpart.

    Args:
        name: Name of the argument.
        value: The value given.
        wanted: What is possible, in words.
    """
    return ValueError(f"{name} must be {wanted} here, got {value!r}: see {PAGE}")


def absent(owner: str, name: str, known: Iterable[str] = ()) -> AttributeError:
    """The error of an attribute of SB3's that is not there."""
    return AttributeError(
        f"{owner} has no attribute {name!r} here{did_you_mean(name, known)}; "
        f"{PAGE} says which of SB3's names there are"
    )


def check_names(given: Iterable[str], known: Iterable[str], owner: str) -> None:
    """Raise a TypeError where a name is unknown, with the nearest one."""
    names = list(known)
    for name in given:
        if name not in names:
            raise TypeError(f"{owner} has no {name!r} here{did_you_mean(name, names)}: see {PAGE}")
