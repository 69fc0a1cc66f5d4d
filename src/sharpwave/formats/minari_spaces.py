"""Spaces of fields, and fields of values in spaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from sharpwave.core.tree import leaves
from sharpwave.formats.dotted import nest
from sharpwave.formats.minari_places import escaped
from sharpwave.formats.spec import EpisodeField
from sharpwave.formats.text import encode_text
from sharpwave.types import Array


def space_of(fields: Mapping[str, EpisodeField]) -> spaces.Space[Any]:
    """The space of everything that some fields can hold: boxes, in dicts where names are dotted."""
    return _space(nest({escaped(name): _box(field) for name, field in fields.items()}))


def _space(nested: Any) -> spaces.Space[Any]:
    if isinstance(nested, dict):
        return spaces.Dict({name: _space(inner) for name, inner in nested.items()})
    box: spaces.Space[Any] = nested
    return box


def _box(field: EpisodeField) -> spaces.Space[Any]:
    dtype = np.dtype(field.dtype)
    low, high = -np.inf, np.inf
    if dtype.kind == "b":
        low, high = 0, 1
    elif dtype.kind in "iu":
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return spaces.Box(low, high, field.shape, dtype.type)


def flattened(space: spaces.Space[Any], values: Any) -> dict[str, Array]:
    """Values of a space over time, [T, ...] by dotted name; texts are rows of bytes.

    Raises:
        ValueError: Values are no numbers.
    """
    flat = {}
    for name, (inner, rows) in leaves(_paired(space, values)):
        if isinstance(inner, spaces.Text):
            flat[name] = encode_text(list(rows), _text_width(inner))
        else:
            flat[name] = np.asarray(rows)
            if flat[name].dtype.kind not in "biuf":
                raise ValueError(f"{name!r} must hold numbers, got {flat[name].dtype}")
    return flat


def in_space(space: spaces.Space[Any], nested: Any) -> Any:
    """Nested dicts with tuples in place of those that a space has as tuples.

    Raises:
        ValueError: They do not have the names of the space.
    """
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return nested
    inner = space.spaces if isinstance(space, spaces.Dict) else _numbered(space.spaces)
    if not isinstance(nested, dict) or nested.keys() != inner.keys():
        raise ValueError(f"fields must be those of the space {space}, got {_names(nested)}")
    parts = {name: in_space(child, nested[name]) for name, child in inner.items()}
    return parts if isinstance(space, spaces.Dict) else tuple(parts.values())


def _names(nested: Any) -> str:
    return str(list(nested)) if isinstance(nested, dict) else "one without parts"


def _numbered(children: tuple[spaces.Space[Any], ...]) -> dict[str, spaces.Space[Any]]:
    return {str(number): child for number, child in enumerate(children)}


def _paired(space: spaces.Space[Any], values: Any) -> Any:
    if isinstance(space, spaces.Dict):
        return {name: _paired(inner, values[name]) for name, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_paired(inner, values[i]) for i, inner in enumerate(space.spaces))
    return [space, values]


def _text_width(space: spaces.Text) -> int:
    return int(space.max_length) * max(len(character.encode()) for character in space.characters)
