"""A rollout laid out for fast minibatches."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from sharpwave.nn.by_hand.network import Buffers

__all__ = ["Rollout"]

_SCALARS = ("log_probs", "advantages", "returns", "old_values")


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
        self._plain = [n_features, 1, 1, 1, 1, n_outputs]
        self._masked = [*self._plain, n_outputs]
        self._sizes = self._plain
        self._max_batch = max_batch
        self._has: set[str] = set()
        self._matrix = torch.empty(0, 0, device=device)
        self._minibatch = Buffers([sum(self._plain)], max_batch, device)
        self._minibatch_masked = Buffers([sum(self._masked)], max_batch, device)

    def fill(
        self,
        features: Tensor,
        scalars: Mapping[str, Tensor | None],
        actions: Tensor,
        masks: Tensor | None,
    ) -> None:
        """Copies samples in: [N, n_features], [N] each, actions [n_outputs, N], [N, n_outputs]."""
        self._sizes = self._plain if masks is None else self._masked
        shape = (sum(self._sizes), len(features))
        if self._matrix.shape != shape:
            self._matrix = self._matrix.new_zeros(shape)
        rows = self._matrix.split(self._sizes)
        rows[0].copy_(features.t())
        for name, row in zip(_SCALARS, rows[1:5], strict=True):
            column = scalars[name]
            if column is not None:
                row.copy_(column)
        rows[5].copy_(actions)
        if masks is not None:
            rows[6].copy_(masks.t())
        self._has = {name for name, column in scalars.items() if column is not None}

    def need(self, *names: str) -> None:
        """Raises ValueError unless there are samples with these scalars."""
        if not self._has:
            raise ValueError("load a rollout before asking for its gradient")
        for name in names:
            if name not in self._has:
                raise ValueError(f"{name} must be loaded for this loss")

    def rows(self, indices: Tensor | None) -> tuple[Tensor, ...]:
        """Some samples, or all, in rows [., B].

        They are features, log_probs, advantages, returns, old_values, actions, and the masks where
        there are some.
        """
        batch = self._matrix.shape[1] if indices is None else len(indices)
        if batch > self._max_batch:
            raise ValueError(f"a minibatch must have at most {self._max_batch} rows, got {batch}")
        if indices is None:
            return self._matrix.split(self._sizes)
        buffers = self._minibatch if self._sizes is self._plain else self._minibatch_masked
        (minibatch,) = buffers.at(batch)
        torch.index_select(self._matrix, 1, indices, out=minibatch)
        return minibatch.split(self._sizes)
