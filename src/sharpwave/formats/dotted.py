"""Nested values by dotted names, and back; the roles that names have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sharpwave.formats.spec import EpisodeSchema


def tree(flat: Mapping[str, Any]) -> Any:
    """The nested dict of values with dotted names; of the lone name "" the value itself.

    Raises:
        ValueError: A name is also the beginning of another.

    Example:
        >>> tree({"image": 1, "arm.angle": 2})
        {'image': 1, 'arm': {'angle': 2}}
        >>> tree({"": 1})
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


SCALAR_ROLES = ("reward", "terminated", "truncated")


def by_role(schema: EpisodeSchema) -> dict[str, str]:
    """The field that has each role; of nested ones the first part of the name.

    The first field of a role has it. Rewards and flags that are no scalars have none.

    Example:
        >>> from sharpwave.formats.spec import EpisodeField
        >>> image = EpisodeField("uint8", (8, 8))
        >>> by_role(EpisodeSchema({"obs.image": image, "reward": EpisodeField("float32")}, {}))
        {'obs': 'obs', 'reward': 'reward'}
    """
    found: dict[str, str] = {}
    for name, field in schema.fields.items():
        first = name.partition(".")[0]
        if field.role in ("obs", "action"):
            found.setdefault(field.role, first)
        elif field.role in SCALAR_ROLES and name == first and field.shape == ():
            found.setdefault(field.role, name)
    return found


def renamed(schema: EpisodeSchema, names: dict[str, str], others: str) -> dict[str, str]:
    """The column of every field in a format with names of its own.

    Args:
        schema: The fields.
        names: The format's name of a role.
        others: Prefix of the name of a field without a role, in place of `info.`.

    Returns:
        The column by field: nested fields have slashes, "observations/image".
    """
    roles = {first: names[role] for role, first in by_role(schema).items() if role in names}
    columns = {}
    for name in schema.fields:
        first, dot, rest = name.partition(".")
        if first in roles:
            inner = rest.replace("/", "%2F").replace(".", "/")
            columns[name] = roles[first] + ("/" + inner if dot else "")
        else:
            columns[name] = others + name.removeprefix("info.").replace("/", "%2F")
    if len(set(columns.values())) < len(columns):
        raise ValueError(f"fields must differ without the `info.` before them, got {list(columns)}")
    return columns
