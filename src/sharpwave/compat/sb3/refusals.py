"""Errors of what SB3 has and this package has not, which say where to read about it."""

from __future__ import annotations

from collections.abc import Iterable

from sharpwave.compat.refusals import Refusals
from sharpwave.core.suggest import did_you_mean

__all__ = ["PAGE", "absent", "check_names", "refuse"]

PAGE = "docs/coming_from_sb3.md"
"""The page that says what differs."""
_refusals = Refusals("SB3", PAGE)
absent, refuse = _refusals.absent, _refusals.refuse


def check_names(given: Iterable[str], known: Iterable[str], owner: str) -> None:
    """Raise a TypeError where a name is unknown, with the nearest one."""
    names = list(known)
    for name in given:
        if name not in names:
            raise TypeError(f"{owner} has no {name!r} here{did_you_mean(name, names)}: see {PAGE}")
