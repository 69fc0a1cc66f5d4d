"""PPO's loss of a minibatch in plain torch, differentiated by autograd: the definition."""

from __future__ import annotations

import math

import torch
from torch import Tensor

EPS = 1e-8
"""Added to the standard deviation of advantages."""

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


def ppo_loss(
    output: Tensor,
    log_std: Tensor | None,
    values: Tensor,
    actions: Tensor,
    old_log_probs: Tensor,
    old_values: Tensor,
    advantages: Tensor,
    returns: Tensor,
    clip: Tensor,
    value_clip: Tensor | None,
    vf_coef: float,
    ent_coef: float,
    normalize: bool,
) -> tuple[Tensor, Tensor]:
    """The loss, and what is logged of it."""
    if log_std is None:
        log_probs, entropy = _categorical(output, actions)
    else:
        log_probs, entropy = _gaussian(output, log_std, actions)
    if normalize:
        std, mean = torch.std_mean(advantages)
        advantages = (advantages - mean) / (std + EPS)
    log_ratio = log_probs - old_log_probs
    ratio = log_ratio.exp()
    clipped = advantages * ratio.clamp(1 - clip, 1 + clip)
    policy_loss = -torch.minimum(advantages * ratio, clipped).mean()
    squares = (values - returns).square()
    if value_clip is not None:
        near = old_values + (values - old_values).clamp(-value_clip, value_clip)
        squares = torch.maximum(squares, (near - returns).square())
    value_loss = 0.5 * squares.mean()
    loss = policy_loss + vf_coef * value_loss - ent_coef * entropy
    with torch.no_grad():
        beyond = log_ratio.expm1()
        parts = policy_loss, value_loss, entropy, (beyond - log_ratio).mean()
        return loss, torch.stack((*parts, (beyond.abs() > clip).float().mean(), loss))


def _categorical(logits: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    log_probs = logits.log_softmax(-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
    return log_probs.gather(-1, actions.long()[:, None])[:, 0], entropy


def _gaussian(means: Tensor, log_std: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    n = means.shape[-1]
    scaled = (actions - means) * (-log_std).exp()
    log_probs = -0.5 * scaled.square().sum(-1) - (log_std.sum() + n * LOG_SQRT_2PI)
    return log_probs, log_std.sum() + n * (0.5 + LOG_SQRT_2PI)
