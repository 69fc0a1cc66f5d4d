"""Nested values by dotted names, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def nest(flat: Mapping[str, Any]) -> Any:
    """The nested dict of values with dotted names; of the lone name "" the value itself.

    Raises:
        ValueError: A name is also the beginning of another.

    Example:
        >>> nest({"image": 1, "arm.angle": 2})
        {'image': 1, 'arm': {'angle': 2}}
        >>> nest({"": 1})
        1
    """
    if list(flat) == [""]:
        return flat[""]
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        *outer, last = name.split(".")
        inner = nested
        for part in outer:
            inner = inner.setdefault(part, {})
        if not isinstance(inner, dict) or last in inner:
            raise ValueError(f"{name!r} cannot stand beside {[*flat]}: a name begins another")
        inner[last] = value
    return nested


def under(first: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Values whose name is `first` or begins with `first.`, by the rest of the name.

    Example:
        >>> under("obs", {"obs.image": 1, "obs.arm.angle": 2, "action": 3})
        {'image': 1, 'arm.angle': 2}
        >>> under("action", {"obs.image": 1, "action": 3})
        {'': 3}
    """
    found = {}
    for name, value in fields.items():
        head, dot, rest = name.partition(".")
        if head == first:
            found[rest if dot else ""] = value
    return found


def joined(first: str, rest: str) -> str:
    """The dotted name of a part."""
    return f"{first}.{rest}" if rest else first
