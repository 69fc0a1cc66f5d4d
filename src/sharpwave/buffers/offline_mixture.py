"""Mixtures of datasets and buffers, for offline-to-online learning."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from sharpwave.core.tree import map_leaves
from sharpwave.types import Array, BatchDict

_OF_ONE_BUFFER = {"indices", "weights"}
"""Entries of batches that say nothing about steps of several buffers."""


class OfflineMixture:
    """Mixture of datasets and buffers: every part gives its share of each batch.

    An algorithm that learns online takes it as its `buffer`: its transitions are pushed to the last
    part that can be pushed to, and batches go on holding steps of the other parts. A part that has
    fewer steps than its share asks for leaves the rest to the others.

    Args:
        parts: Pairs of a dataset or buffer, and its share of every batch. Shares need not sum to 1.

    Attributes:
        parts: The datasets and buffers.
        shares: Their shares, which sum to 1.

    Raises:
        TypeError: A part cannot be sampled.
        ValueError: There are no parts, or a share is negative.

    Example:
        >>> import numpy as np
        >>> from sharpwave import OfflineDatasetBuffer, ReplayBuffer
        >>> obs, zeros = np.ones((10, 2)), np.zeros(10)
        >>> data = OfflineDatasetBuffer(obs, obs, zeros, zeros, zeros, zeros)
        >>> online = ReplayBuffer(100, obs_dim=2, act_dim=1)
        >>> online.push(np.zeros(2), 0.0, 0.0, False, False, np.zeros(2))
        >>> mixture = OfflineMixture([(data, 0.5), (online, 0.5)])
        >>> mixture.sample(4, seed=0)["obs"].shape
        (4, 2)
    """

    def __init__(self, parts: Iterable[tuple[Any, float]]) -> None:
        pairs = list(parts)
        if not pairs:
            raise ValueError("parts must hold at least one dataset, got none")
        self.parts = [part for part, _ in pairs]
        given = np.array([share for _, share in pairs], np.float64)
        for i, part in enumerate(self.parts):
            if not (hasattr(part, "sample") and hasattr(part, "__len__")):
                raise TypeError(f"parts[{i}] must have sample and a length, got {part!r}")
        if not (np.isfinite(given).all() and (given >= 0).all() and given.sum() > 0):
            raise ValueError(f"shares must be at least 0, one of them more, got {given.tolist()}")
        self.shares: Array = given / given.sum()

    def sample(self, batch_size: int, seed: int | None = None, *, view: Any = None) -> BatchDict:
        """Steps of every part, those of the first one first.

        Args:
            batch_size: Steps to draw.
            seed: Random seed of the draw; the generators of the parts when not given.
            view: View of the steps; only for parts that are buffers of this library.

        Returns:
            The entries that the batches of all parts have.

        Raises:
            ValueError: There are too few steps.
        """
        options = {} if view is None else {"view": view}
        batches = []
        for i, (part, count) in enumerate(zip(self.parts, self._counts(batch_size), strict=True)):
            if count:
                own = None if seed is None else (seed + i * 0x9E3779B97F4A7C15) % 2**64
                batches.append(rows_of(part).sample(int(count), own, **options))
        shared = set.intersection(*map(set, batches)) - _OF_ONE_BUFFER
        names = [name for name in batches[0] if name in shared]
        return {name: _joined([batch[name] for batch in batches]) for name in names}

    @property
    def growing(self) -> Any:
        """The part that steps are pushed to, the last one that takes them.

        Raises:
            TypeError: There is none.
        """
        for part in reversed(self.parts):
            if hasattr(part, "push_batch"):
                return part
        raise TypeError("parts must have one that can be pushed to")

    def push(self, *args: Any, **fields: Any) -> Any:
        """Push a step to the part that grows."""
        return self.growing.push(*args, **fields)

    def push_batch(self, *args: Any, **fields: Any) -> Any:
        """Push steps to the part that grows."""
        return self.growing.push_batch(*args, **fields)

    def _counts(self, batch_size: int) -> Array:
        """Number of steps that each part gives."""
        limits = np.array([_limit(part) for part in self.parts])
        shares = np.where(limits > 0, self.shares, 0.0)
        counts = np.zeros(len(self.parts), np.int64)
        while (left := batch_size - int(counts.sum())) > 0:
            shares = np.where(counts < limits, shares, 0.0)
            if not shares.any():
                raise ValueError(
                    f"batch_size must be at most the steps to draw from, got {batch_size}"
                )
            wanted = left * shares / shares.sum()
            more = np.floor(wanted).astype(np.int64)
            # What rounding leaves goes to the largest remainders.
            order = np.argsort(more - wanted, kind="stable")
            more[order[: left - int(more.sum())]] += 1
            counts += np.minimum(more, limits - counts)
        return counts

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def __repr__(self) -> str:
        parts = ", ".join(
            f"{share:.0%} of {part!r}" for part, share in zip(self.parts, self.shares, strict=True)
        )
        return f"OfflineMixture({parts})"


def rows_of(dataset: Any) -> Any:
    """The part of a dataset that takes views: its rows, where it has some."""
    return getattr(dataset, "rows", dataset)


def _limit(part: Any) -> int:
    """The most steps that a draw may hold."""
    options = getattr(rows_of(part), "_options", {"oversample": True})
    oversample = options["oversample"] and len(part) > 0
    return 2**62 if oversample else len(part)


def _joined(values: list[Any]) -> Any:
    return map_leaves(_concatenated, *values)


def _concatenated(*arrays: Any) -> Array:
    rows = [np.asarray(array) for array in arrays]
    if len({array.ndim for array in rows}) > 1:  # actions of one dimension may lack their axis
        rows = [array.reshape(len(array), -1) for array in rows]
    return np.concatenate(rows)
