"""Sampling from several replay shards as from one buffer: probabilities, importance weights.

Step i of shard k has the leaf l_i: 1 in a uniform buffer, its priority to the power of alpha in a
prioritized one. With T_k the sum of a shard's leaves, a shard is drawn with probability T_k / Σ T,
and one of its steps with l_i / T_k: together l_i / Σ T, which is what one buffer with all steps
does.

The sums that shards are chosen by may be older than those that the shard draws by, since others
push meanwhile. A step is then drawn with a probability proportional to l_i T'_k / T_k, with T'_k
the older sum: its effective leaf, which is what its weight is computed from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sharpwave.types import Array, Ids

__all__ = [
    "MAX_SHARDS",
    "importance_weights",
    "join_ids",
    "nothing_to_draw",
    "same_epoch",
    "seed_of",
    "split_counts",
    "split_ids",
]

_EPOCH_BITS, _ROW_BITS = 12, 44
MAX_SHARDS = 2 ** (64 - _EPOCH_BITS - _ROW_BITS)
_EPOCH_MASK = 2**_EPOCH_BITS - 1
_ROW_MASK = np.uint64(2**_ROW_BITS - 1)


def split_counts(generator: np.random.Generator, n: int, totals: Sequence[float]) -> list[int]:
    """Split n draws over the shards, in proportion to their sums (multinomial).

    Args:
        generator: Random generator of the split.
        n: Number of steps to draw.
        totals: The sum of leaves of each shard; at least one is positive.
    """
    if len(totals) == 1:
        return [n]
    shares = np.asarray(totals, np.float64)
    counts: list[int] = generator.multinomial(n, shares / shares.sum()).tolist()
    return counts


def seed_of(generator: np.random.Generator) -> int:
    """A seed of 63 bits, which fits into a message."""
    drawn: int = generator.bit_generator.random_raw() >> 1
    return drawn


def importance_weights(
    leaves: Sequence[Array],
    factors: Sequence[float],
    smallest: float,
    beta: float,
    *,
    by_batch: bool,
) -> Array:
    """The weights (N P(i))^-β / max (N P)^-β of a batch of several shards, float32 [B].

    Args:
        leaves: Leaves of each shard's steps.
        factors: T'_k / T_k of each shard.
        smallest: The smallest effective leaf of the shards that there are.
        beta: Exponent of the weights.
        by_batch: The maximum is over the batch instead.

    Example:
        >>> importance_weights([np.array([1.0, 4.0])], [1.0], 1.0, 0.5, by_batch=False)
        array([1. , 0.5], dtype=float32)
    """
    effective = np.concatenate(
        [leaf.astype(np.float64) * factor for leaf, factor in zip(leaves, factors, strict=True)]
    )
    drawable = effective > 0.0  # a step that was overwritten just now has none any more
    if by_batch or not math.isfinite(smallest):
        smallest = float(effective[drawable].min(initial=math.inf))
    weights = np.zeros(len(effective), np.float64)
    weights[drawable] = np.minimum(smallest / effective[drawable], 1.0) ** beta
    return weights.astype(np.float32)


def join_ids(shard: int, epoch: int, rows: Ids) -> Ids:
    """Ids that carry the shard and how often its rows began anew.

    Args:
        shard: Number of the shard.
        epoch: Times that the shard lost its rows; counted modulo 4096.
        rows: Ids of the shard's own.
    """
    joined: Ids = np.bitwise_or(
        rows, np.uint64((shard << (64 - 8)) | ((epoch & _EPOCH_MASK) << _ROW_BITS))
    )
    return joined


def split_ids(ids: Ids) -> tuple[Array, Array, Ids]:
    """Shards, epochs and the shards' own ids.

    Example:
        >>> shards, epochs, rows = split_ids(join_ids(3, 7, np.array([11], np.uint64)))
        >>> shards.tolist(), epochs.tolist(), rows.tolist()
        ([3], [7], [11])
    """
    shards = (ids >> np.uint64(_EPOCH_BITS + _ROW_BITS)).astype(np.int64)
    epochs = (ids >> np.uint64(_ROW_BITS)).astype(np.int64) & _EPOCH_MASK
    return shards, epochs, ids & _ROW_MASK


def same_epoch(epochs: Array, epoch: int) -> Array:
    """True where an id is of the rows that a shard has now."""
    same: Array = epochs == (epoch & _EPOCH_MASK)
    return same


def nothing_to_draw(batch_size: int, there: int, reasons: Sequence[str]) -> ValueError:
    """The error where no step of any shard can be drawn.

    Args:
        batch_size: Number of steps that were asked for.
        there: Number of steps that there are.
        reasons: Reasons of shards that had none that fits.
    """
    if there < batch_size:
        return ValueError(
            f"batch_size must be at most {there}, the steps of the shards, got {batch_size}"
        )
    if reasons:
        return ValueError("; ".join(reasons))
    return ValueError("priorities must not all be zero: no step can be drawn")
