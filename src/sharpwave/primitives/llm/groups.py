"""Group advantages with all their options, in NumPy; native code has those without."""

from __future__ import annotations

import operator
from typing import Any, Literal

import numpy as np

from sharpwave.core.lazy import torch
from sharpwave.types import Array

__all__ = ["SCALES", "Scale", "group_advantages", "resolve_scale"]

Scale = Literal["group", "batch", "none"]
SCALES = ("group", "batch", "none")
LEAST_STD = 1e-8


def resolve_scale(ddof: int, eps: float, leave_one_out: bool, scale: str | None) -> str:
    """The scale, by default the one that goes with leave_one_out.

    Raises:
        ValueError: An option is not known.

    Example:
        >>> resolve_scale(0, 0.0, True, None)
        'none'
    """
    if ddof not in (0, 1):
        raise ValueError(f"ddof must be 0 or 1, got {ddof!r}")
    if not 0 <= eps < float("inf"):
        raise ValueError(f"eps must be finite and not negative, got {eps!r}")
    if scale is None:
        return "none" if leave_one_out else "group"
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}")
    return scale


def group_advantages(
    rewards: Any,
    group_size: int | None,
    *,
    mask: Any,
    ddof: int,
    eps: float,
    leave_one_out: bool,
    scale: str | None,
) -> Any:
    """Advantages of consecutive groups, or of one where group_size is None."""
    scale = resolve_scale(ddof, eps, leave_one_out, scale)
    given = _array("rewards", rewards)
    size = max(given.size, 1) if group_size is None else operator.index(group_size)
    if size < 1 or given.size % size:
        raise ValueError(
            f"group_size must divide the number of rewards, got {size} for {given.size} rewards"
        )
    scored = np.ones(given.shape, bool) if mask is None else _array("mask", mask) != 0
    if scored.shape != given.shape:
        raise ValueError(f"mask must have shape {given.shape} like rewards, got {scored.shape}")

    groups, counted = given.reshape(-1, size).astype(np.float64), scored.reshape(-1, size)
    with np.errstate(all="ignore"):  # infinite rewards
        deviation, count = _centered(groups, counted)
        advantages = deviation
        if leave_one_out:
            advantages = advantages * (count / np.maximum(count - 1, 1))
        if scale == "group":
            advantages = advantages * _inverse_std(deviation, count, ddof, eps)
        elif scale == "batch":
            whole = _centered(groups.reshape(1, -1), counted.reshape(1, -1))
            advantages = advantages * _inverse_std(*whole, ddof, eps)
    dtype = np.float32 if given.dtype == np.float32 else np.float64
    result = advantages.reshape(given.shape).astype(dtype)
    return torch.from_numpy(result) if hasattr(rewards, "detach") else result


def _array(name: str, given: Any) -> Array:
    array: Array = np.asarray(given.detach() if hasattr(given, "detach") else given)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be real numbers, got dtype {array.dtype}")
    return array


def _centered(rewards: Array, scored: Array) -> tuple[Array, Array]:
    """[G, K] scored rewards less their mean in the row, 0 elsewhere; and [G, 1] how many there are.

    A reward is taken off before anything is summed, so that equals give 0.
    """
    count = scored.sum(1, keepdims=True)
    first = np.where(scored, rewards, np.inf).min(1, keepdims=True, initial=np.inf)
    deviation = np.where(scored, rewards - first, 0.0)
    mean = deviation.sum(1, keepdims=True) / np.maximum(count, 1)
    return np.where(scored, deviation - mean, 0.0), count


def _inverse_std(deviation: Array, count: Array, ddof: int, eps: float) -> Array:
    """[G, 1]: 1 / (standard deviation + eps), 0 where there is none."""
    squares = np.square(deviation).sum(1, keepdims=True)
    std = np.sqrt(squares / np.maximum(count - ddof, 1))
    inverse: Array = np.where(std < LEAST_STD, 0.0, 1 / (std + eps))
    return inverse
