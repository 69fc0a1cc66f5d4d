"""Initial weights, drawn from a NumPy generator so that every backend starts from the same ones."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["fan_in_uniform", "orthogonal", "truncated_normal"]


def orthogonal(
    generator: np.random.Generator, shape: tuple[int, ...], gain: float = 1.0
) -> NDArray[np.float32]:
    """A matrix with orthonormal rows or columns, whichever are fewer, times `gain`.

    The axes after the first are taken as one, so a convolution's weight has orthonormal filters.
    The factor of a QR decomposition is made unique by a positive diagonal of R, which makes the
    result uniform over the orthogonal matrices.

    Args:
        generator: Source of the normal numbers; `prod(shape)` are drawn.
        shape: At least two axes, output first.
        gain: Length of the rows or columns.

    Returns:
        [*shape] float32.

    Raises:
        ValueError: `shape` has fewer than two axes.

    Example:
        >>> weight = orthogonal(np.random.default_rng(0), (2, 3), gain=2.0)
        >>> np.abs(weight @ weight.T).round(5).tolist()
        [[4.0, 0.0], [0.0, 4.0]]
    """
    if len(shape) < 2:
        raise ValueError(f"shape must have at least two axes, got {shape}")
    rows, columns = shape[0], math.prod(shape[1:])
    normal = generator.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(normal)
    q *= np.where(np.diagonal(r) < 0, -gain, gain)
    weight = q if rows >= columns else q.T
    return np.ascontiguousarray(weight, np.float32).reshape(shape)


def fan_in_uniform(
    generator: np.random.Generator, shape: tuple[int, ...], fan_in: int
) -> NDArray[np.float32]:
    """Numbers uniform in ±1 / sqrt(fan_in), as torch's layers begin.

    Args:
        generator: Source of the numbers.
        shape: Shape of the result.
        fan_in: Number of inputs of the layer.

    Example:
        >>> bool(abs(fan_in_uniform(np.random.default_rng(0), (5, 4), 4)).max() <= 0.5)
        True
    """
    bound = 1.0 / math.sqrt(max(fan_in, 1))
    return generator.uniform(-bound, bound, shape).astype(np.float32)


def truncated_normal(
    generator: np.random.Generator, shape: tuple[int, ...], fan_in: int, scale: float = 1.0
) -> NDArray[np.float32]:
    """Normal numbers within two deviations, of variance scale² / fan_in.

    Args:
        generator: Source of the numbers.
        shape: Shape of the result.
        fan_in: Number of inputs of each unit.
        scale: Factor; 0 gives zeros.

    Example:
        >>> weight = truncated_normal(np.random.default_rng(0), (100, 64), 64)
        >>> bool(abs(weight).max() <= 2 * 1.1368 / 8), round(float(weight.std()), 3)
        (True, 0.125)
    """
    drawn = generator.standard_normal(shape)
    while (outside := np.abs(drawn) > 2.0).any():
        drawn[outside] = generator.standard_normal(int(outside.sum()))
    # What is cut off would have had a part of the variance.
    return (drawn * (1.1368 * scale / math.sqrt(max(fan_in, 1)))).astype(np.float32)
