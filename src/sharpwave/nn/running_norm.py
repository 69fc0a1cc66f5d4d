"""Normalization by running statistics, which stay on the device."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["ReturnScale", "RunningNorm"]

EPS = 1e-2
"""Added to a standard deviation, so that what hardly changes is not blown up."""


class RunningNorm(nn.Module):
    """(x - mean) / (std + ε) by the mean and the standard deviation of all rows so far.

    Nothing waits for the device. Before the first `update` it leaves x almost as it is.

    Args:
        size: Length of a row.
        until: Number of rows from which on the statistics stay as they are.

    Attributes:
        mean: [size].
        var: [size] biased variance.
        count: [] int64, rows so far.

    Example:
        >>> norm = RunningNorm(1)
        >>> norm.update(torch.tensor([[1.0], [3.0]]))
        >>> norm.mean.item(), norm.var.item(), norm.count.item()
        (2.0, 1.0, 2)
    """

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, size: int, *, until: int = 10**8) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("var", torch.ones(size))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self._until = until

    def forward(self, x: Tensor) -> Tensor:
        """Rows [..., size], normalized."""
        return (x - self.mean) / (self.var.sqrt() + EPS)

    @torch.no_grad()
    def update(self, rows: Tensor) -> None:
        """Learn from rows [..., size]."""
        rows = rows.detach().reshape(-1, rows.shape[-1])
        var, mean = torch.var_mean(rows, 0, correction=0)
        added = len(rows) * (self.count < self._until)
        self.count += added
        share = (added / self.count.clamp(min=1)).float()
        before = mean - self.mean
        self.mean += share * before
        self.var += share * (var - self.var + before * (mean - self.mean))


class ReturnScale(nn.Module):
    """Divides rewards by the running standard deviation of their discounted sums.

    Rewards that shrink as the agent learns keep a size that values can be learned at.

    Args:
        gamma: Discount of the sums, which go on over the ends of episodes.

    Attributes:
        sums: [N] the discounted sums; None before the first rewards.
    """

    def __init__(self, gamma: float = 0.99) -> None:
        super().__init__()
        self.norm = RunningNorm(1)
        self._gamma = gamma
        self.sums: Tensor | None = None

    @torch.no_grad()
    def forward(self, rewards: Tensor) -> Tensor:
        """The rewards [N] of one step of every environment, scaled; it learns from them."""
        if self.sums is None or self.sums.shape != rewards.shape:
            self.sums = torch.zeros_like(rewards)
        self.sums = self._gamma * self.sums + rewards
        self.norm.update(self.sums[:, None])
        std = self.norm.var.sqrt()
        return torch.where(std > 0, rewards / std, rewards)
