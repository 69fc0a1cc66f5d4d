"""Metrics of a minibatch, gathered so that a single product averages them all."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["METRICS", "Metrics", "Terms"]

METRICS = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "loss")
"""Names of the metrics, in order."""


class Terms(NamedTuple):
    """What the metrics average.

    Attributes:
        matrix: [5, B], the rows below.
        mean: [B], 1/B each.
        gains: [1, B] the policy's.
        squares: [1, B] of the errors of the values.
        minus_entropy: [1, B].
        kl: [1, B].
        clipped: [1, B], 1 where the ratio was clipped.
    """

    matrix: Tensor
    mean: Tensor
    gains: Tensor
    squares: Tensor
    minus_entropy: Tensor
    kl: Tensor
    clipped: Tensor


class Metrics:
    """Keeps the memory of the terms.

    Args:
        max_batch: Largest B.
        device: Where it lies.
    """

    def __init__(self, max_batch: int, device: torch.device) -> None:
        self._memory = torch.empty(5 * max_batch, device=device)
        self._terms: dict[int, Terms] = {}
        self._coefficients: tuple[float, float] | None = None
        self._table = torch.empty(0)

    def terms(self, batch: int) -> Terms:
        """Where to write the terms of B rows."""
        if batch not in self._terms:
            matrix = self._memory[: 5 * batch].view(5, batch)
            mean = torch.full((batch,), 1.0 / batch, device=matrix.device)
            self._terms[batch] = Terms(matrix, mean, *matrix.split(1))
        return self._terms[batch]

    def of(self, terms: Terms, vf_coef: float, ent_coef: float) -> Tensor:
        """[6] metrics, in the order of `METRICS`."""
        if self._coefficients != (vf_coef, ent_coef):
            self._coefficients = (vf_coef, ent_coef)
            means = torch.diag(torch.tensor([-1.0, 0.5, -1.0, 1.0, 1.0]))
            loss = torch.tensor([[-1.0, 0.5 * vf_coef, ent_coef, 0.0, 0.0]])
            self._table = torch.cat((means, loss)).to(terms.matrix.device)
        return torch.mv(self._table, torch.mv(terms.matrix, terms.mean))
