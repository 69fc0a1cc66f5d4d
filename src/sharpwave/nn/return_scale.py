"""Rewards of a steady size, by running statistics on the device."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sharpwave.nn.running_norm import RunningNorm

__all__ = ["ReturnScale"]


class ReturnScale(nn.Module):
    """Divides rewards by the running standard deviation of their discounted sums.

    Rewards that shrink as the agent learns keep a size that values can be learned at.

    Args:
        gamma: Discount of the sums, which go on over the ends of episodes.

    Attributes:
        norm: The statistics of the sums.
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
        self.norm.count(self.sums[:, None])
        std = self.norm.var.sqrt().to(rewards.dtype)
        return torch.where(std > 0, rewards / std, rewards)
