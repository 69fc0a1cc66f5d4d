"""A rollout laid out for fast minibatches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Rollout", "Rows"]

SCALARS = ("log_probs", "advantages", "returns", "old_values")
"""Columns of one number a sample."""


class Rows(NamedTuple):
    """Samples, one column each.

    Attributes:
        obs: [features, B].
        log_probs: [1, B].
        advantages: [1, B].
        returns: [1, B].
        old_values: [1, B].
        actions: [n, B] encoded.
        masks: [n, B], 0 where an action was forbidden; None where there are none.
    """

    obs: Tensor
    log_probs: Tensor
    advantages: Tensor
    returns: Tensor
    old_values: Tensor
    actions: Tensor
    masks: Tensor | None = None


class Rollout:
    """Samples as the columns of one matrix, so that one selection gathers a minibatch.

    Args:
        n_features: Numbers of one observation.
        n_outputs: Numbers of one encoded action, and of one mask.
        max_batch: Most samples of one minibatch.
        device: Where they lie.
    """

    def __init__(
        self, n_features: int, n_outputs: int, max_batch: int, device: torch.device
    ) -> None:
        self._sizes = [n_features, *(1 for _ in SCALARS), n_outputs, n_outputs]
        self._max_batch = max_batch
        self._has: set[str] = set()
        self._masked = False
        self._matrix = torch.empty(0, 0, device=device)
        self._memory = torch.empty(sum(self._sizes) * max_batch, device=device)
        self._minibatches: dict[tuple[int, bool], tuple[Tensor, Rows]] = {}

    def fill(
        self,
        features: Tensor,
        scalars: Mapping[str, Tensor | None],
        actions: Tensor,
        masks: Tensor | None,
    ) -> None:
        """Copies samples in: [N, n_features], [N] each, actions [n_outputs, N], [N, n_outputs]."""
        self._masked = masks is not None
        shape = (self._height(self._masked), len(features))
        if self._matrix.shape != shape:
            self._matrix = self._matrix.new_zeros(shape)
        rows = self._split(self._matrix)
        rows.obs.copy_(features.t())
        for name, column in scalars.items():
            if column is not None:
                getattr(rows, name).copy_(column)
        rows.actions.copy_(actions)
        if masks is not None and rows.masks is not None:
            rows.masks.copy_(masks.t())
        self._has = {name for name, column in scalars.items() if column is not None}

    def rows(self, indices: Tensor | None, *needed: str) -> Rows:
        """Some samples, or all.

        Args:
            indices: [B] which.
            needed: Scalars that must have been filled in.

        Raises:
            ValueError: One was not, or the samples are too many.
        """
        if not self._has:
            raise ValueError("load a rollout before asking for its gradient")
        for name in needed:
            if name not in self._has:
                raise ValueError(f"{name} must be loaded for this loss")
        batch = self._matrix.shape[1] if indices is None else len(indices)
        if batch > self._max_batch:
            raise ValueError(f"a minibatch must have at most {self._max_batch} rows, got {batch}")
        if indices is None:
            return self._split(self._matrix)
        minibatch, rows = self._minibatch(batch)
        torch.index_select(self._matrix, 1, indices, out=minibatch)
        return rows

    def _minibatch(self, batch: int) -> tuple[Tensor, Rows]:
        """The matrix of minibatches of one size, and its rows."""
        key = (batch, self._masked)
        if key not in self._minibatches:
            height = self._height(self._masked)
            matrix = self._memory[: height * batch].view(height, batch)
            self._minibatches[key] = (matrix, self._split(matrix))
        return self._minibatches[key]

    def _height(self, masked: bool) -> int:
        return sum(self._sizes if masked else self._sizes[:-1])

    def _split(self, matrix: Tensor) -> Rows:
        return Rows(*matrix.split(self._sizes if self._masked else self._sizes[:-1]))
