"""Losses and statistics of on-policy algorithms.

Each function takes `weights`, one weight for each row, where rows may be padding (weight 0) without
changing the shape of a batch: a mean is then Σ wᵢxᵢ / Σ wᵢ, a variance Σ wᵢ(xᵢ − x̄)² / (Σ wᵢ − 1).
A `clip` may be a number or a tensor without axes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sharpwave.losses.q_learning import huber

__all__ = [
    "approx_kl",
    "clip_fraction",
    "clipped_surrogate",
    "clipped_value_loss",
    "explained_variance",
    "mean",
    "normalize",
    "policy_gradient",
    "value_loss",
]


def mean(x: Tensor, weights: Tensor | None = None) -> Tensor:
    """The weighted mean Σ wᵢxᵢ / Σ wᵢ.

    Args:
        x: [B] values.
        weights: [B] weight of each row, or None for ones.

    Returns:
        [] mean; 0 when all weights are 0.

    Example:
        >>> mean(torch.tensor([1.0, 5.0, 9.0]), torch.tensor([1.0, 1.0, 0.0])).item()
        3.0
    """
    return x.mean() if weights is None else (x * weights).sum() / _positive(weights.sum())


def normalize(
    advantages: Tensor,
    weights: Tensor | None = None,
    eps: float = 1e-8,
    *,
    total: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Normalizes advantages to mean 0 and standard deviation 1.

    (A − Ā) / (σ + ε) with σ² = Σ (Aᵢ − Ā)² / (n − 1). One value alone stays as it is.

    Args:
        advantages: [B] advantages.
        weights: [B] weight of each row, or None for ones.
        eps: ε.
        total: Sums numbers over all processes that have rows of the same minibatch; None where
            this one has all rows.

    Returns:
        [B] normalized advantages.

    Example:
        >>> normalize(torch.tensor([1.0, 2.0, 3.0])).tolist()
        [-1.0, 0.0, 1.0]
    """
    if total is not None:
        return _normalize_together(advantages, weights, eps, total)
    if advantages.numel() == 1:
        return advantages
    if weights is None:
        std, average = torch.std_mean(advantages)
        return (advantages - average) / (std + eps)
    centered = advantages - mean(advantages, weights)
    normalized = centered / (_variance(centered, weights).sqrt() + eps)
    return torch.where(weights.sum() > 1, normalized, advantages)


def _normalize_together(
    advantages: Tensor, weights: Tensor | None, eps: float, total: Callable[[Tensor], Tensor]
) -> Tensor:
    rows = advantages.double()
    counts = torch.ones_like(rows) if weights is None else weights.double()
    moments = torch.stack((counts.sum(), (counts * rows).sum(), (counts * rows.square()).sum()))
    n, first, second = total(moments).unbind()
    average = first / _positive(n)
    variance = (second - n * average.square()).clamp_min(0) / (n - 1).clamp_min(1)
    normalized = ((rows - average) / (variance.sqrt() + eps)).to(advantages.dtype)
    return torch.where(n > 1, normalized, advantages)


def clipped_surrogate(
    log_ratio: Tensor, advantages: Tensor, clip: float | Tensor, weights: Tensor | None = None
) -> Tensor:
    """The clipped policy loss of PPO (Schulman et al., 2017).

    L = mean(max(−A r, −A clip(r, 1 − c, 1 + c))) with r = exp(log_ratio).

    Args:
        log_ratio: [B] log-probability of the action now, less that when it was taken.
        advantages: [B] advantages A.
        clip: Clip range c.
        weights: [B] weight of each row, or None for ones.

    Returns:
        [] loss.

    Example:
        >>> clipped_surrogate(torch.log(torch.tensor([2.0])), torch.tensor([3.0]), 0.25).item()
        -3.75
    """
    ratio = log_ratio.exp()
    clipped = _clamp(ratio, 1 - clip, 1 + clip)
    return -mean(torch.minimum(advantages * ratio, advantages * clipped), weights)


def policy_gradient(log_probs: Tensor, advantages: Tensor, weights: Tensor | None = None) -> Tensor:
    """The policy loss of A2C, whose gradient is the policy gradient: L = −mean(A log π).

    Args:
        log_probs: [B] log-probability of the action.
        advantages: [B] advantages A.
        weights: [B] weight of each row, or None for ones.

    Returns:
        [] loss.

    Example:
        >>> policy_gradient(torch.tensor([-1.0, -3.0]), torch.tensor([1.0, 2.0])).item()
        3.5
    """
    return -mean(advantages * log_probs, weights)


def value_loss(
    values: Tensor,
    returns: Tensor,
    weights: Tensor | None = None,
    *,
    huber_delta: float | None = None,
) -> Tensor:
    """The squared error of the values: L = ½ mean((V − R)²).

    Args:
        values: [B] values V.
        returns: [B] returns R to predict.
        weights: [B] weight of each row, or None for ones.
        huber_delta: Errors beyond it count linearly; None for the plain square.

    Returns:
        [] loss.

    Example:
        >>> value_loss(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 2.0])).item()
        1.0
    """
    return 0.5 * mean(_squares(values - returns, huber_delta), weights)


def clipped_value_loss(
    values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    clip: float | Tensor,
    weights: Tensor | None = None,
    *,
    huber_delta: float | None = None,
) -> Tensor:
    """The squared error of the values, which gains nothing from moving far from the old ones.

    L = ½ mean(max((V − R)², (V' − R)²)) with V' = V_old + clip(V − V_old, −c, c).

    Args:
        values: [B] values V.
        old_values: [B] values V_old when the actions were taken.
        returns: [B] returns R to predict.
        clip: Clip range c.
        weights: [B] weight of each row, or None for ones.
        huber_delta: Errors beyond it count linearly; None for the plain square.

    Returns:
        [] loss.

    Example:
        >>> one, three = torch.tensor([1.0]), torch.tensor([3.0])
        >>> clipped_value_loss(three, one, three, 0.5).item()
        1.125
    """
    clipped = old_values + _clamp(values - old_values, -clip, clip)
    errors = [_squares(x - returns, huber_delta) for x in (values, clipped)]
    return 0.5 * mean(torch.maximum(*errors), weights)


def approx_kl(log_ratio: Tensor, weights: Tensor | None = None) -> Tensor:
    """Estimates the KL divergence of the new policy from the old one, by the old one's actions.

    mean((r − 1) − log r) with r = exp(log_ratio): unbiased, never negative, of low variance.

    Args:
        log_ratio: [B] log-probability of the action now, less that when it was taken.
        weights: [B] weight of each row, or None for ones.

    Returns:
        [] estimate.

    Example:
        >>> approx_kl(torch.zeros(3)).item()
        0.0
    """
    return mean(log_ratio.expm1() - log_ratio, weights)


def clip_fraction(log_ratio: Tensor, clip: float | Tensor, weights: Tensor | None = None) -> Tensor:
    """The fraction of rows whose ratio lies outside the clip range: mean(|r − 1| > c).

    Args:
        log_ratio: [B] log-probability of the action now, less that when it was taken.
        clip: Clip range c.
        weights: [B] weight of each row, or None for ones.

    Returns:
        [] fraction.

    Example:
        >>> clip_fraction(torch.tensor([0.0, 1.0]), 0.2).item()
        0.5
    """
    return mean((log_ratio.expm1().abs() > clip).to(log_ratio.dtype), weights)


def explained_variance(values: Tensor, returns: Tensor, weights: Tensor | None = None) -> Tensor:
    """Share of the returns' variance that the values explain: 1 − Var(R − V) / Var(R).

    Args:
        values: [B] values V.
        returns: [B] returns R.
        weights: [B] weight of each row, or None for ones.

    Returns:
        [] 1 for perfect values, 0 for a constant one, negative for worse; NaN when all returns are
        equal.

    Example:
        >>> explained_variance(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])).item()
        1.0
    """
    errors = returns - values
    total = _variance(returns - mean(returns, weights), weights)
    left = _variance(errors - mean(errors, weights), weights)
    return torch.where(total == 0, torch.nan, 1 - left / total)


def _variance(centered: Tensor, weights: Tensor | None) -> Tensor:
    if weights is None:
        return centered.square().sum() / (centered.numel() - 1)
    return (weights * centered.square()).sum() / _positive(weights.sum() - 1)


def _squares(errors: Tensor, huber_delta: float | None) -> Tensor:
    """δ², beyond the threshold κ instead κ(2|δ| − κ)."""
    return errors.square() if huber_delta is None else 2.0 * huber(errors, huber_delta)


def _positive(divisor: Tensor) -> Tensor:
    """A divisor for sums that are 0 where it is not positive."""
    return divisor.clamp_min(torch.finfo(divisor.dtype).tiny)


def _clamp(x: Tensor, low: Any, high: Any) -> Tensor:
    return x.clamp(low, high)
