"""Running normalization of value targets."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["ValueNorm"]

LEAST_VARIANCE = 1e-2
"""Returns that hardly differ are not blown up."""


class ValueNorm(nn.Module):
    """Keeps the mean and the deviation of returns, so that a critic learns normalized ones.

    Both are exponential means of what `update` was given, debiased as Adam's are. Before the first
    update nothing is changed.

    Args:
        decay: Share of the old mean that an update keeps.

    Example:
        >>> norm = ValueNorm()
        >>> norm.update(torch.tensor([1.0, 3.0]))
        >>> norm.normalize(torch.tensor([3.0])).item(), norm.denormalize(torch.tensor([0.0])).item()
        (1.0, 2.0)
    """

    mean: Tensor
    mean_square: Tensor
    weight: Tensor

    def __init__(self, decay: float = 0.99999) -> None:
        super().__init__()
        self.decay = decay
        # Differences of large squares: in float32 the deviation would drown in rounding.
        for name in ("mean", "mean_square", "weight"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def update(self, returns: Tensor, weights: Tensor | None = None) -> None:
        """Take in returns [B], those of weight 0 left out; nothing where all are."""
        x, step = returns.double(), torch.full_like(self.weight, 1.0 - self.decay)
        if weights is None:
            first, second = x.mean(), x.square().mean()
        else:
            total = weights.double().sum()
            share = weights.double() / total.clamp(min=torch.finfo(total.dtype).tiny)
            first, second = (x * share).sum(), (x.square() * share).sum()
            step = step * (total > 0)
        self.mean.lerp_(first, step)
        self.mean_square.lerp_(second, step)
        self.weight.lerp_(torch.ones_like(self.weight), step)

    def normalize(self, x: Tensor) -> Tensor:
        """Values as the critic has them."""
        mean, deviation = self.moments()
        return (x - mean) / deviation

    def denormalize(self, x: Tensor) -> Tensor:
        """Values in the unit of rewards."""
        mean, deviation = self.moments()
        return x * deviation + mean

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and deviation [] of the returns so far; 0 and 1 before the first."""
        weight = self.weight.clamp(min=torch.finfo(torch.float64).tiny)
        mean = self.mean / weight
        variance = (self.mean_square / weight - mean.square()).clamp(min=LEAST_VARIANCE)
        variance = torch.where(self.weight > 0, variance, torch.ones_like(variance))
        return mean.float(), variance.sqrt().float()
