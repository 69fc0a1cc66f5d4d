"""Group advantages and token KL in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

LEAST_STD = 1e-8


def group_advantages(
    rewards: Tensor,
    mask: Tensor | None,
    out: Tensor,
    *,
    ddof: int,
    eps: float,
    leave_one_out: bool,
    scaled: bool,
) -> None:
    """[G, K] in and out."""
    deviation, count = centered(rewards.to(out.dtype), mask)
    advantages = deviation
    if leave_one_out:
        advantages = advantages * (count / (count - 1).clamp(min=1))
    if scaled:
        advantages = advantages * inverse(standard_deviation(deviation, count, ddof), eps)
    out.copy_(advantages)


def centered(rewards: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """[G, K] scored rewards less their mean in the row, 0 elsewhere; and [G, 1] how many there are.

    A reward is taken off before anything is summed, so that equals give 0.
    """
    if mask is None:
        scored, first = torch.ones_like(rewards, dtype=torch.bool), rewards[:, :1]
    else:
        scored = mask != 0
        first = torch.where(scored, rewards, torch.inf).amin(1, keepdim=True)
    count = scored.sum(1, keepdim=True)
    deviation = torch.where(scored, rewards - first, 0.0)
    mean = deviation.sum(1, keepdim=True) / count
    return torch.where(scored, deviation - mean, 0.0), count


def standard_deviation(deviation: Tensor, count: Tensor, ddof: int) -> Tensor:
    """[G, 1] of what `centered` gives."""
    squares = deviation.square().sum(1, keepdim=True)
    return (squares / (count - ddof).clamp(min=1)).sqrt()


def inverse(std: Tensor, eps: float) -> Tensor:
    """1 / (std + eps), 0 where there is no deviation."""
    return torch.where(std < LEAST_STD, 0.0, 1 / (std + eps))


def token_kl(
    log_p: Tensor, log_q: Tensor, mask: Tensor | None, estimator: str, out: Tensor
) -> None:
    """[B, L] in, [B] out."""
    terms = kl_terms(log_p.double(), log_q.double(), estimator)
    if mask is not None:
        terms = torch.where(mask != 0, terms, 0.0)
    out.copy_(terms.sum(1))


def kl_terms(p: Tensor, q: Tensor, estimator: str) -> Tensor:
    """The term of each token, differentiable."""
    never = p == -torch.inf
    d = torch.where(never & (q == p), 0.0, p - q)  # equals that are finite keep their gradient
    if estimator == "k1":
        return d
    if estimator == "k2":
        return d.square() / 2
    if estimator == "k3":
        return torch.expm1(-d) + d
    return p.exp() * torch.where(never, 0.0, d)
