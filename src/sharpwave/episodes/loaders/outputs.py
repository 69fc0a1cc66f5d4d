"""Outputs of a batch: the values that are read, and their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from sharpwave.core.suggest import did_you_mean

__all__ = ["Output", "Recipe", "below", "chosen_fields", "make_recipe"]

Source = Literal["row", "next", "span", "meta", "place"]
SOURCES: tuple[Source, ...] = ("row", "next", "span", "meta", "place")


class Output(NamedTuple):
    """One value of a batch.

    Attributes:
        name: Its name in the batch; dots separate the keys of nested dicts.
        source: Place of the value: at an item's row, at the row after its last one, over all its
            rows, in its episode's values, or its place alone.
        field: The field it is read from.
        asked: True if batches hold it without it being named.
    """

    name: str
    source: Source
    field: str
    asked: bool = True


@dataclass(frozen=True)
class Recipe:
    """The fields to read, by source, and the names of the values, in the order of the sources."""

    row: tuple[str, ...]
    next: tuple[str, ...]
    span: tuple[str, ...]
    meta: tuple[str, ...]
    place: tuple[str, ...]
    names: tuple[str, ...]


def below(name: str, known: Iterable[str]) -> list[str]:
    """The known names that are `name` or inside of it.

    Example:
        >>> below("obs", ["obs.image", "obs.speed", "obstacle"])
        ['obs.image', 'obs.speed']
    """
    return [each for each in known if each == name or each.startswith(f"{name}.")]


def chosen_fields(
    argument: str, names: Sequence[str] | None, known: Sequence[str]
) -> tuple[str, ...]:
    """The known fields that are named, a tree by its first part; all when `names` is None.

    Raises:
        TypeError: `names` is no sequence of strings.
        ValueError: A name is unknown or comes twice.
    """
    if names is None:
        return tuple(known)
    checked_names(argument, names)
    found: dict[str, None] = {}
    for name in names:
        inner = below(name, known)
        if not inner:
            raise ValueError(f"{argument} has no field {name!r} to take{did_you_mean(name, known)}")
        if any(each in found for each in inner):
            raise ValueError(f"{argument} must name a field once, got {name!r} again")
        found.update(dict.fromkeys(inner))
    return tuple(found)


def checked_names(argument: str, names: Sequence[str]) -> tuple[str, ...]:
    """The names as a tuple.

    Raises:
        TypeError: They are no sequence of strings.
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(f"{argument} must be a tuple of names, got {names!r}")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{argument} must be a tuple of names, got {name!r} in it")
    return tuple(names)


def make_recipe(
    outputs: Sequence[Output],
    fieldname_map: Mapping[str, str] | None,
    named: Sequence[str] | None,
) -> Recipe:
    """Select the outputs to read.

    Args:
        outputs: All there are.
        fieldname_map: New names by old name; a tree may be renamed by its first part.
        named: Values that the caller wants, by new names; None for the default ones.

    Raises:
        ValueError: A name is unknown, or two values have the same.
    """
    renamed = _renamed(outputs, fieldname_map)
    wanted = [output for output in renamed if output.asked]
    if named is not None:
        wanted = [each for name in named for each in _find(name, wanted, renamed)]
        wanted = list(dict.fromkeys(wanted))
    _check_apart(wanted)
    wanted.sort(key=lambda output: SOURCES.index(output.source))
    row, following, span, meta, place = (
        tuple(output.field for output in wanted if output.source == source) for source in SOURCES
    )
    return Recipe(row, following, span, meta, place, tuple(output.name for output in wanted))


def _renamed(outputs: Sequence[Output], names: Mapping[str, str] | None) -> list[Output]:
    if names is None:
        return list(outputs)
    if not isinstance(names, Mapping):
        raise TypeError(f"fieldname_map must be a dict, got {type(names).__name__}")
    known = [output.name for output in outputs]
    for old, new in names.items():
        if not isinstance(new, str) or not all(new.split(".")):
            raise ValueError(f"fieldname_map must map to names, got {new!r} for {old!r}")
        if not below(old, known):
            raise ValueError(f"fieldname_map has no {old!r} to rename{did_you_mean(old, known)}")

    def rename(name: str) -> str:
        parts = name.split(".")
        for n in range(len(parts), 0, -1):
            new = names.get(".".join(parts[:n]))
            if new is not None:
                return ".".join([new, *parts[n:]])
        return name

    return [output._replace(name=rename(output.name)) for output in outputs]


def _find(name: str, first: Sequence[Output], others: Sequence[Output]) -> list[Output]:
    """The outputs called `name` or inside of it; what is asked anyway goes before the rest."""
    for outputs in (first, others):
        inner = set(below(name, (output.name for output in outputs)))
        if inner:
            return [output for output in outputs if output.name in inner]
    known = [output.name for output in others]
    raise ValueError(
        f"to_named_tuple has no value {name!r} to take{did_you_mean(name, known)} "
        f"(there are {', '.join(known)})"
    )


def _check_apart(outputs: Sequence[Output]) -> None:
    for i, output in enumerate(outputs):
        for other in outputs[:i]:
            if below(output.name, [other.name]) or below(other.name, [output.name]):
                raise ValueError(
                    f"two values of a batch are called {output.name!r}: rename one of them with "
                    f"fieldname_map, or leave one out"
                )
