"""The form in which values are handed out: a dict, nested where fields are, or a named tuple."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from sharpwave.episodes.loaders.outputs import below

__all__ = ["Batch", "BatchForm"]

Batch: TypeAlias = Any
"""A dict of arrays or tensors, or a named tuple of them."""

Plan: TypeAlias = "int | dict[str, Plan]"
"""The place of a value, or a dict of plans."""


class BatchForm:
    """Makes a batch of values.

    Args:
        names: Names of the values; dots separate the keys of nested dicts.
        named: The attributes of a named tuple; None for a dict. Leading underscores are not part
            of an attribute's name.

    Raises:
        ValueError: Two attributes are the same, or one is no identifier.

    Example:
        >>> BatchForm(["obs.x", "obs.y", "_lens"])([1, 2, 3])
        {'obs': {'x': 1, 'y': 2}, '_lens': 3}
        >>> BatchForm(["obs.x", "obs.y", "_lens"], ["_lens", "obs"])([1, 2, 3])
        Batch(lens=3, obs={'x': 1, 'y': 2})
    """

    def __init__(self, names: Sequence[str], named: Sequence[str] | None = None) -> None:
        self.names = tuple(names)
        self.named = None if named is None else tuple(named)
        self._make: Callable[[Sequence[Any]], Batch]
        if named is not None:
            self._make = _tuple_maker(self.names, named)
        elif any("." in name for name in names):
            plan = _plan("", list(enumerate(self.names)))
            self._make = lambda values: _built(plan, values)
        else:
            self._make = lambda values: dict(zip(self.names, values, strict=True))

    def __call__(self, values: Sequence[Any]) -> Batch:
        """The batch of these values, which are in the order of the names."""
        return self._make(values)

    def __reduce__(self) -> tuple[Any, ...]:
        return BatchForm, (self.names, self.named)


def _tuple_maker(names: tuple[str, ...], named: Sequence[str]) -> Callable[[Sequence[Any]], Batch]:
    attributes = [name.lstrip("_").replace(".", "_") for name in named]
    try:
        kind: Any = namedtuple("Batch", attributes)  # type: ignore[misc] # known only here
    except ValueError as error:
        raise ValueError(f"to_named_tuple cannot be {tuple(named)}: {error}") from None
    plans = [
        _plan(name, [(i, each) for i, each in enumerate(names) if below(name, [each])])
        for name in named
    ]
    return lambda values: kind._make(_built(plan, values) for plan in plans)


def _plan(prefix: str, entries: list[tuple[int, str]]) -> Plan:
    """The plan of the values whose names are `prefix` or inside of it."""
    if len(entries) == 1 and entries[0][1] == prefix:
        return entries[0][0]
    start = len(prefix) + 1 if prefix else 0
    keys = dict.fromkeys(name[start:].partition(".")[0] for _, name in entries)
    plan: dict[str, Plan] = {}
    for key in keys:
        path = prefix + "." * bool(prefix) + key
        plan[key] = _plan(path, [(i, name) for i, name in entries if below(path, [name])])
    return plan


def _built(plan: Plan, values: Sequence[Any]) -> Any:
    if isinstance(plan, int):
        return values[plan]
    return {key: _built(inner, values) for key, inner in plan.items()}
