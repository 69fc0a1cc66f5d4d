"""Observations normalized by running statistics inside of a network, on its device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from sharpwave.nn.features import Combined, Features

__all__ = ["NormalizedFeatures", "RunningNorm"]


class RunningNorm(nn.Module):
    """Normalization by running mean and variance: (x − mean) / √(var + ε), held within ±clip.

    Statistics are tensors that `count` changes in place, so that nothing waits for the device and a
    CUDA graph sees them. They change by `count` alone, so that play leaves them.

    Args:
        size: Length of the vectors.
        clip: Bound of what comes out.
        epsilon: Added to the variance.

    Attributes:
        mean: [size] float64.
        var: [size] float64.
        n: [] float64, rows that were counted.

    Example:
        >>> norm = RunningNorm(1)
        >>> norm.count(torch.tensor([[1.0], [3.0]]))
        >>> norm(torch.tensor([[3.0]])).tolist()
        [[1.0]]
    """

    mean: Tensor
    var: Tensor
    n: Tensor

    def __init__(self, size: int, *, clip: float = 10.0, epsilon: float = 1e-8) -> None:
        super().__init__()
        self.clip, self.epsilon = clip, epsilon
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("var", torch.ones(size, dtype=torch.float64))
        self.register_buffer("n", torch.zeros((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """[..., size] normalized."""
        scale = (self.var + self.epsilon).rsqrt().to(x.dtype)
        return ((x - self.mean.to(x.dtype)) * scale).clamp(-self.clip, self.clip)

    @torch.no_grad()
    def count(
        self,
        x: Tensor,
        weights: Tensor | None = None,
        total: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        """Counts rows.

        Args:
            x: [..., size].
            weights: [...] 1 where a row counts and 0 where not; None counts all.
            total: Sums numbers over all processes that have rows; None where this one has all.
        """
        rows = x.reshape(-1, x.shape[-1])
        if weights is None:
            var, mean = torch.var_mean(rows, 0, correction=0)
            n = torch.full_like(self.n, len(rows))
        else:
            counted = weights.reshape(-1, 1).to(rows.dtype)
            n = counted.sum().double()
            mean = (rows * counted).sum(0) / counted.sum().clamp_min(1)
            var = ((rows - mean).square() * counted).sum(0) / counted.sum().clamp_min(1)
        mean, var = mean.double(), var.double()
        if total is not None:  # by the moments around a mean that all have
            shift = mean - self.mean
            moments = total(torch.cat((n[None], n * shift, n * (var + shift.square()))))
            n, first, second = moments[0], *moments[1:].chunk(2)
            mean = self.mean + first / n.clamp_min(1)
            var = (second / n.clamp_min(1) - (mean - self.mean).square()).clamp_min(0)
        share, delta = n / (self.n + n).clamp_min(1), mean - self.mean
        self.mean.add_(share * delta)
        before = torch.where(self.n > 0, self.var, var)
        merged = before + share * (var - before + (1 - share) * delta.square() * (self.n > 0))
        self.var.copy_(torch.where(n > 0, merged, self.var))
        self.n.add_(n)


class NormalizedFeatures(Features):
    """Features whose numbers are normalized; one-hot integers and images stay as they are.

    Args:
        features: The features.
        space: Whose features they are.
    """

    is_number: Tensor

    def __init__(self, features: Features, space: spaces.Space[Any]) -> None:
        super().__init__()
        self.inner = features
        self.size = features.size
        self.norm = RunningNorm(self.size)
        flags = torch.from_numpy(np.array(_numbers(features, space)))
        self._only_numbers = bool(flags.all())
        self.register_buffer("is_number", flags, persistent=False)

    def forward(self, obs: Any) -> Tensor:
        """Observations as [..., size]."""
        x: Tensor = self.inner(obs)
        return self.norm(x) if self._only_numbers else torch.where(self.is_number, self.norm(x), x)

    @torch.no_grad()
    def count(self, obs: Any, weights: Tensor | None, total: Any) -> None:
        """Counts observations; see `RunningNorm.count`."""
        self.norm.count(self.inner(obs), weights, total)


def _numbers(features: Any, space: spaces.Space[Any]) -> list[bool]:
    """True for each feature that is a number of the observation."""
    if isinstance(features, Combined):
        parts: Any = space.spaces  # type: ignore[attr-defined]
        inner = parts.values() if hasattr(parts, "values") else parts
        pairs = zip(features.leaves, inner, strict=True)
        return [flag for leaf, one in pairs for flag in _numbers(leaf, one)]
    is_number = isinstance(space, spaces.Box) and np.dtype(space.dtype).kind == "f"
    return [is_number] * features.size
