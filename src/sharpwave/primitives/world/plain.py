"""Row-wise functions of a world model's step, in plain torch: the definitions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import silu

EPS = 1e-4


def norm_silu(x: Tensor, scale: Tensor) -> Tensor:
    """SiLU of RMS-normalized rows."""
    y = _wide(x)
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + EPS) * scale
    return silu(y).to(x.dtype)


def norm_silu_backward(x: Tensor, scale: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of `norm_silu` by x and by the scale."""
    y = _wide(x)
    root = torch.rsqrt(y.square().mean(-1, keepdim=True) + EPS)
    y = y * root
    z = y * scale
    gate = z.sigmoid()
    grad = grad * (gate + z * gate * (1.0 - gate))
    of_y = grad * scale
    of_x = root * (of_y - y * (of_y * y).mean(-1, keepdim=True))
    return of_x.to(x.dtype), (grad * y).flatten(0, -2).sum(0)


def norm_silu_rows(x: Tensor, scale: Tensor, grad: Tensor) -> Tensor:
    """The gradient of `norm_silu` by x alone."""
    return norm_silu_backward(x, scale, grad)[0]


def remember(gates: Tensor, before: Tensor) -> Tensor:
    """Output [B, K n] of the recurrent unit, from gates [K, B, 3 n] and its state before."""
    reset, candidate, update = _wide(gates).chunk(3, -1)
    candidate = torch.tanh(reset.sigmoid() * candidate)
    update = (update - 1.0).sigmoid()
    return rows(update * candidate + (1.0 - update) * blocks(before, len(gates))).to(before.dtype)


def remember_backward(gates: Tensor, before: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of `remember` by gates and by what was."""
    reset, candidate, update = _wide(gates).chunk(3, -1)
    reset, update = reset.sigmoid(), (update - 1.0).sigmoid()
    grad, old = blocks(grad, len(gates)), blocks(before, len(gates))
    new = torch.tanh(reset * candidate)
    of_new = grad * update * (1.0 - new * new)
    of_update = grad * (new - old) * update * (1.0 - update)
    of_reset = of_new * candidate * reset * (1.0 - reset)
    of_gates = torch.cat((of_reset, of_new * reset, of_update), -1)
    return of_gates.to(gates.dtype), rows(grad * (1.0 - update)).to(before.dtype)


def draw_classes(logits: Tensor, noise: Tensor, share: float) -> Tensor:
    """One-hot draws [..., C] from logits, mixed with a share of the uniform distribution."""
    probs = (1.0 - share) * _wide(logits).softmax(-1) + share / logits.shape[-1]
    chosen = (probs.log() + noise).argmax(-1, keepdim=True)
    return torch.zeros_like(logits).scatter_(-1, chosen, 1.0)


def draw_classes_backward(logits: Tensor, grad: Tensor, share: float) -> Tensor:
    """The gradient of the probabilities, in the place of that of the draws."""
    probs = _wide(logits).softmax(-1)
    of_logits = (1.0 - share) * probs * (grad - (probs * grad).sum(-1, keepdim=True))
    return of_logits.to(logits.dtype)


def two_hot_mean(logits: Tensor, bins: Tensor) -> Tensor:
    """The mean over symmetric bins, those of one size subtracted from each other first."""
    probs, half = logits.softmax(-1), len(bins) // 2
    positive, negative = probs[..., half + 1 :], probs[..., :half].flip(-1)
    return ((positive - negative) * bins[half + 1 :]).sum(-1)


def two_hot_loss(logits: Tensor, bins: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Cross-entropies [...] of logits [..., n] with targets [k, ...], added up by weights [k]."""
    log_probs = logits.log_softmax(-1)
    targets = targets.clamp(bins[0], bins[-1])
    above = torch.searchsorted(bins, targets.contiguous(), right=True).clamp(1, len(bins) - 1)
    below = above - 1
    low, high = bins[below], bins[above]
    share = (targets - low) / (high - low)
    wide = log_probs.expand(len(targets), *log_probs.shape)
    at_low = wide.gather(-1, below[..., None]).squeeze(-1)
    at_high = wide.gather(-1, above[..., None]).squeeze(-1)
    losses = -((1.0 - share) * at_low + share * at_high)
    total: Tensor = torch.tensordot(weights, losses, 1)
    return total


def blocks(x: Tensor, n: int) -> Tensor:
    """[B, D] as [K, B, D / K]."""
    parts: Tensor = x.unflatten(-1, (n, -1))
    return parts.transpose(0, 1)


def rows(x: Tensor) -> Tensor:
    """[K, B, D / K] as [B, D]."""
    return x.transpose(0, 1).flatten(1)


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()
