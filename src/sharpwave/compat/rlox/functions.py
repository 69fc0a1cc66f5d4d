"""rlox's functions on arrays that are not primitives of sharpwave."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sharpwave import primitives
from sharpwave.buffers.replay import check_count
from sharpwave.types import Array, BatchDict

__all__ = [
    "average_weight_vectors",
    "compute_goal_distance_potentials",
    "py_sample_mixed",
    "random_shift_batch",
    "reptile_update",
    "shape_rewards_pbrs",
]


def shape_rewards_pbrs(
    rewards: npt.ArrayLike,
    potentials_current: npt.ArrayLike,
    potentials_next: npt.ArrayLike,
    gamma: float,
    dones: npt.ArrayLike,
) -> npt.NDArray[np.float64]:
    """R + γ Φ(s') - Φ(s), and r alone where an episode ends.

    Args:
        rewards: [N].
        potentials_current: [N] Φ(s).
        potentials_next: [N] Φ(s').
        gamma: Discount γ.
        dones: [N], not 0 where an episode ends.

    Raises:
        ValueError: Lengths differ.
    """
    given = [np.asarray(x, np.float64) for x in (rewards, potentials_current, potentials_next)]
    ended = np.asarray(dones, np.float64) != 0
    for name, array in zip(
        ("potentials_current", "potentials_next", "dones"), (*given[1:], ended), strict=True
    ):
        if array.shape != given[0].shape:
            raise ValueError(
                f"{name} must have shape {given[0].shape} like rewards, got {array.shape}"
            )
    shaped = given[0] + gamma * given[2] - given[1]
    return np.where(ended, given[0], shaped)


def compute_goal_distance_potentials(
    observations: npt.ArrayLike,
    goal: npt.ArrayLike,
    obs_dim: int,
    goal_start: int,
    goal_dim: int,
    scale: float,
) -> npt.NDArray[np.float64]:
    """-scale · |s[goal_start : goal_start + goal_dim] - goal|.

    Args:
        observations: [N * obs_dim], or [N, obs_dim].
        goal: [goal_dim].
        obs_dim: Length of an observation.
        goal_start: Index in it of the first dimension of the goal.
        goal_dim: Number of dimensions of the goal.
        scale: Factor.

    Returns:
        [N].

    Raises:
        ValueError: Something does not fit.
    """
    obs = np.asarray(observations, np.float64)
    target = np.asarray(goal, np.float64)
    if obs.size % obs_dim:
        raise ValueError(f"observations must be rows of {obs_dim} numbers, got {obs.size} numbers")
    if goal_start < 0 or goal_start + goal_dim > obs_dim:
        raise ValueError(
            f"goal_start and goal_dim must lie within obs_dim, {obs_dim}, "
            f"got {goal_start} and {goal_dim}"
        )
    if target.shape != (goal_dim,):
        raise ValueError(f"goal must have shape ({goal_dim},), got {target.shape}")
    parts = obs.reshape(-1, obs_dim)[:, goal_start : goal_start + goal_dim]
    return np.asarray(-scale * np.linalg.norm(parts - target, axis=1))


def random_shift_batch(
    images: npt.ArrayLike,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
    pad: int,
    seed: int,
) -> npt.NDArray[np.float32]:
    """Images moved by up to `pad` pixels in each direction, each by its own draw, zeros around.

    Args:
        images: [batch_size * channels * height * width], or with these axes.
        batch_size: Images.
        channels: Of an image.
        height: Of an image.
        width: Of an image.
        pad: Pixels.
        seed: Of the draws.

    Returns:
        The same, flat.

    Raises:
        ValueError: The number of pixels is another.
    """
    shape = (batch_size, channels, height, width)
    given = np.asarray(images, np.float32)
    if given.size != math.prod(shape):
        raise ValueError(f"images must have {math.prod(shape)} numbers, got {given.size}")
    check_count("pad", pad, 0)
    padded = np.pad(given.reshape(shape), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    starts = np.random.default_rng(seed).integers(0, 2 * pad + 1, (batch_size, 2))
    moved = np.empty(shape, np.float32)
    for i, (y, x) in enumerate(starts):
        moved[i] = padded[i, :, y : y + height, x : x + width]
    return moved.reshape(-1)


def reptile_update(meta_params: Array, task_params: npt.ArrayLike, meta_lr: float) -> None:
    """Meta += lr · (task - meta), in place.

    Args:
        meta_params: A float32 or float64 array.
        task_params: As many numbers.
        meta_lr: From 0 to 1.

    Raises:
        TypeError, ValueError: Something does not fit.
    """
    primitives.polyak(meta_params, np.asarray(task_params, meta_params.dtype), meta_lr)


def average_weight_vectors(vectors: Sequence[npt.ArrayLike]) -> npt.NDArray[np.float32]:
    """The mean of weight vectors.

    Raises:
        ValueError: There are none, or their lengths differ.
    """
    arrays = [np.asarray(vector, np.float32) for vector in vectors]
    if not arrays:
        raise ValueError("vectors must hold at least one, got none")
    for i, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise ValueError(
                f"vectors[{i}] must have shape {arrays[0].shape} like the first, got {array.shape}"
            )
    return np.asarray(np.mean(arrays, axis=0, dtype=np.float64), np.float32)


def py_sample_mixed(
    buffer_a: Any, buffer_b: Any, ratio: float, batch_size: int, seed: int | None = None
) -> BatchDict:
    """A batch of two buffers: ceil(batch_size · ratio) rows of the first, the rest of the second.

    Raises:
        ValueError: `ratio` is not from 0 to 1, or a buffer has too few steps.
    """
    if not 0.0 <= ratio <= 1.0:
        raise ValueError(f"ratio must be from 0 to 1, got {ratio}")
    check_count("batch_size", batch_size, 0)
    first = math.ceil(batch_size * ratio)
    parts = [buffer_a.sample(first, seed), buffer_b.sample(batch_size - first, seed)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
