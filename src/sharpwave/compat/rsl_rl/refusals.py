"""Errors of what rsl_rl has and this package has not, which say where to read about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sharpwave.compat.refusals import Refusals
from sharpwave.core.suggest import did_you_mean

__all__ = ["PAGE", "absent", "check_entries", "refuse"]

PAGE = "docs/coming_from_rsl_rl.md"
"""The page that says what differs."""
_refusals = Refusals("rsl_rl", PAGE)
absent, refuse = _refusals.absent, _refusals.refuse


def check_entries(given: Mapping[str, Any], known: Iterable[str], owner: str) -> None:
    """Raise where a configuration has an entry that nobody knows, with the nearest one."""
    names = sorted(known)
    for name in given:
        if name not in names:
            raise ValueError(
                f"{owner} has no entry {name!r}{did_you_mean(name, names)}: see {PAGE}"
            )
