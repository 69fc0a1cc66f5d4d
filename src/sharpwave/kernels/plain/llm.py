"""Group advantages and token KL in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

LEAST_STD = 1e-8


def group_advantages(rewards: Tensor, out: Tensor) -> None:
    """[G, K]; the first reward is taken off before anything is summed, so that equals give 0."""
    rewards = rewards.to(out.dtype)
    deviation = rewards - rewards[:, :1]
    deviation = deviation - deviation.mean(1, keepdim=True)
    std = deviation.square().mean(1, keepdim=True).sqrt()
    out.copy_(torch.where(std < LEAST_STD, 0.0, deviation / std))


def token_kl(
    log_p: Tensor, log_q: Tensor, mask: Tensor | None, estimator: str, out: Tensor
) -> None:
    """[B, L] in, [B] out."""
    p, q = log_p.double(), log_q.double()
    difference = torch.where(p == q, 0.0, p - q)
    if estimator == "k1":
        terms = difference
    elif estimator == "k2":
        terms = difference.square() / 2
    elif estimator == "k3":
        terms = torch.expm1(-difference) + difference
    else:
        terms = torch.where(p == -torch.inf, 0.0, p.exp() * difference)
    if mask is not None:
        terms = torch.where(mask != 0, terms, 0.0)
    out.copy_(terms.sum(1))
