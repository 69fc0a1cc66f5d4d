"""Whole columns of episodes at once, for `update` and `get_all_data`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sharpwave.core.lazy import torch
from sharpwave.core.suggest import did_you_mean
from sharpwave.core.tree import leaves
from sharpwave.types import Array

if TYPE_CHECKING:
    from sharpwave.episodes.buffer import EpisodeBuffer
    from sharpwave.episodes.loaders.reader import EpisodeReader
    from sharpwave.formats.spec import EpisodeField

Patch = tuple[bool, str, Array, Array, Array]
"""A flag for fields of episodes, the field, first rows, counts of rows, and values."""

LENGTHS = "episode_lens"
"""The name under which the lengths stand among the fields of episodes."""


def patches(buffer: EpisodeBuffer, indices: Any, data: Mapping[str, Any]) -> list[Patch]:
    """The rows that `update` writes over."""
    if not data:
        raise TypeError("update() needs at least one field")
    table = buffer.episodes()
    single, chosen = _positions(indices, len(table))
    starts, lengths, ids = table.starts[chosen], table.lengths[chosen], table.ids[chosen]
    schema = buffer.schema
    found: list[Patch] = []
    for argument, given in data.items():
        for path, leaf in leaves(given):
            name = f"{argument}.{path}" if path else argument
            value = as_numpy_array(leaf)
            if name in schema.fields:
                widest = int(lengths.max(initial=0))
                values = _step_values(name, schema.fields[name], value, single, len(chosen), widest)
                if value.ndim > 0:
                    _check_ends(name, values, lengths)
                counts = np.minimum(lengths, values.shape[1])
                rows = values.reshape(-1, *values.shape[2:])
                found.append((False, name, starts, counts, rows))
            elif name in schema.meta_fields:
                values = _episode_values(name, schema.meta_fields[name], value, single, len(chosen))
                found.append((True, name, ids, np.ones_like(ids), values))
            else:
                known = [*schema.fields, *schema.meta_fields]
                raise TypeError(
                    f"update() got an unknown field {name!r}{did_you_mean(name, known)}"
                )
    return found


def _positions(indices: Any, n: int) -> tuple[bool, npt.NDArray[np.int64]]:
    """A flag, true if one position was given without an axis; and all positions."""
    if indices is None:
        return False, np.arange(n)
    if isinstance(indices, slice):
        return False, np.arange(n)[indices]
    given = np.asarray(indices)
    if given.size and given.dtype.kind not in "iu":
        raise TypeError(f"indices must be integers, got dtype {given.dtype}")
    chosen = given.astype(np.int64).reshape(-1)
    wrong = chosen[(chosen < -n) | (chosen >= n)]
    if wrong.size:
        raise IndexError(
            f"indices must be from 0 to {n - 1}, the episodes there are, got {wrong[0]}"
        )
    chosen = np.where(chosen < 0, chosen + n, chosen)
    if len(np.unique(chosen)) != len(chosen):
        raise ValueError("indices must not repeat")
    return given.ndim == 0, chosen


def _step_values(
    name: str, field: EpisodeField, value: Array, single: bool, n: int, widest: int
) -> Array:
    """The values as [n, T, *shape]."""
    if value.ndim == 0:
        return np.broadcast_to(value, (n, widest, *field.shape))
    full = value[None] if single else value
    if full.ndim == 2 + len(field.shape) + 1 and full.shape[-1] == 1:
        full = full[..., 0]
    if full.ndim != 2 + len(field.shape) or full.shape[0] not in (1, n):
        expected = "(T" if single else f"({n}, T"
        shape = "".join(f", {size}" for size in field.shape)
        raise ValueError(f"{name} must have shape {expected}{shape}), got {value.shape}")
    return _broadcast(name, full, (n, full.shape[1], *field.shape))


def _check_ends(name: str, values: Array, lengths: npt.NDArray[np.int64]) -> None:
    """Raise for values of steps that an episode does not have; zeros that pad it are none."""
    longest = int(lengths.max(initial=0))
    if values.shape[1] > longest:
        raise ValueError(
            f"{name} must have at most {longest} steps, the length of the "
            f"{'episode' if len(lengths) == 1 else 'longest episode'}, got {values.shape[1]}"
        )
    for number in np.flatnonzero(lengths < values.shape[1]):
        rest = values[number, lengths[number] :]
        if values.shape[1] < longest or rest.any():
            raise ValueError(
                f"{name} must have at most {lengths[number]} steps for episode {number} of those "
                f"given, which has {lengths[number]}, or be padded with zeros to the {longest} of "
                f"the longest, got {values.shape[1]}"
            )


def _episode_values(name: str, field: EpisodeField, value: Array, single: bool, n: int) -> Array:
    """The values as [n, *shape]."""
    full = value[None] if single and value.ndim == len(field.shape) else value
    return _broadcast(name, full, (n, *field.shape))


def _broadcast(name: str, value: Array, shape: tuple[int, ...]) -> Array:
    try:
        return np.broadcast_to(value, shape)
    except ValueError:
        raise ValueError(f"{name} must have shape {shape}, got {value.shape}") from None


def as_numpy_array(value: Any) -> Array:
    """An array, list, number or tensor as an array."""
    detach = getattr(value, "detach", None)
    return np.asarray(value if detach is None else detach().cpu().numpy())


def all_data(
    buffer: EpisodeReader,
    fields: Sequence[str] | None,
    meta_fields: Sequence[str] | None,
    device: Any,
    *,
    as_numpy: bool,
) -> dict[str, Any]:
    """The columns that `EpisodeBuffer.get_all_data` returns."""
    table = buffer.episodes()
    if len(table) == 0:
        return {}
    if fields is None and meta_fields is None:
        fields = tuple(buffer.schema.fields)
        meta_fields = (*buffer.schema.meta_fields, LENGTHS)
    found: dict[str, Any] = {}
    if fields:
        longest = int(table.lengths.max())
        found.update(buffer.gather_ranges(table.starts, table.lengths, longest, tuple(fields)))
    for name in meta_fields or ():
        if name == LENGTHS and name not in table.meta:
            found[name] = table.lengths.astype(np.int32)
        elif name in table.meta:
            found[name] = table.meta[name]
        else:
            raise ValueError(
                f"meta_fields must name fields of episodes, got {name!r}"
                f"{did_you_mean(name, table.meta)}"
            )
    if as_numpy:
        return found
    return {name: torch.from_numpy(array).to(device) for name, array in found.items()}
