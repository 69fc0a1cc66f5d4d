"""Observations that a caller hands in: one of them, or a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from sharpwave.types import Nested

__all__ = ["as_batch"]


def as_batch(space: spaces.Space[Any], obs: Any) -> tuple[Nested, int, bool]:
    """Observations as a batch of arrays.

    Args:
        space: The space of one observation.
        obs: One observation or a batch of them: arrays, lists, tensors, nested as the space.

    Returns:
        (batch, its length, whether `obs` was one observation).

    Raises:
        ValueError: A shape is neither that of an observation nor that of a batch.

    Example:
        >>> batch, n, single = as_batch(spaces.Box(-1, 1, (2,)), [0.5, 0.5])
        >>> batch.shape, n, single
        ((1, 2), 1, True)
    """
    lengths: set[int | None] = set()
    batch = _leaves(space, obs, "obs", lengths)
    if len(lengths) != 1:
        raise ValueError(f"obs must have one length in all its parts, got {lengths}")
    (length,) = lengths
    return batch, 1 if length is None else length, length is None


def _leaves(space: spaces.Space[Any], obs: Any, name: str, lengths: set[int | None]) -> Nested:
    if isinstance(space, spaces.Dict):
        return {
            key: _leaves(inner, _entry(obs, key, name), f"{name}[{key!r}]", lengths)
            for key, inner in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        return tuple(
            _leaves(inner, _entry(obs, i, name), f"{name}[{i}]", lengths)
            for i, inner in enumerate(space.spaces)
        )
    shape = space.shape or ()
    try:
        array = np.asarray(obs, dtype=space.dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of {space.dtype}: {error}") from error
    if array.shape == shape:
        lengths.add(None)
        return array[None]
    if array.shape[1:] == shape and array.ndim == len(shape) + 1:
        lengths.add(len(array))
        return array
    batch = f"(batch, {', '.join(map(str, shape))})" if shape else "(batch,)"
    raise ValueError(
        f"{name} must have shape {shape} or {batch} of the observation space, got {array.shape}"
    )


def _entry(obs: Any, key: str | int, name: str) -> Any:
    try:
        return obs[key]
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"{name} must have an entry {key!r} like the observation space") from error
