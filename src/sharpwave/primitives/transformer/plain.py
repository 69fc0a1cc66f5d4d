"""Parts of a transformer in plain torch, as the Triton kernels have them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention, silu


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up."""
    return silu(gate) * up


def gated_backward(gate: Tensor, up: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of silu(gate) * up by both."""
    share = gate.sigmoid()
    slope = torch.addcmul(share, gate * share, 1 - share)
    return gradient * up * slope, gradient * gate * share


def normed(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """[N, H] over the roots of its mean squares, times the weight; and one over these roots [N]."""
    wide = x if x.dtype == torch.float64 else x.float()
    scale = (wide.square().mean(-1, keepdim=True) + eps).rsqrt_()
    return (wide * scale).to(x.dtype) * weight, scale[:, 0]


def normed_backward(
    gradient: Tensor, x: Tensor, weight: Tensor, scale: Tensor, add: Tensor
) -> tuple[Tensor, Tensor]:
    """`add` [N, H] plus the gradient of `normed` by x, and that by the weight."""
    wide = x.to(scale.dtype)
    unit = wide * scale[:, None]
    to_unit = gradient.to(scale.dtype) * weight.to(scale.dtype)
    along = (to_unit * unit).mean(-1, keepdim=True)
    to_x = (to_unit - unit * along) * scale[:, None] + add.to(scale.dtype)
    to_weight = (gradient.to(scale.dtype) * unit).sum(0)
    return to_x.to(x.dtype), to_weight.to(weight.dtype)


def rotated(x: Tensor, cos: Tensor, sin: Tensor, sign: float = 1.0) -> Tensor:
    """Heads [N, H, D] turned by the angles [N, D] of their positions, back where `sign` is -1."""
    first, second = x.chunk(2, -1)
    turned = torch.cat([-second, first] if sign > 0 else [second, -first], -1)
    return x * cos[:, None] + turned * sin[:, None]


def store(
    q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, write: Tensor, *cache: Tensor
) -> Tensor:
    """Turn q and k, write k and v [S, H, D] into slots [S, H, C, D] at `write` [S]; returns q."""
    keys, values = cache
    rows = torch.arange(len(q), device=q.device)
    keys[rows, :, write] = rotated(k, cos, sin)
    values[rows, :, write] = v
    return rotated(q, cos, sin)


def attend(q: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, scale: float) -> Tensor:
    """Attention [S, H, D] of one query in each slot to the first `lengths` [S] keys."""
    reach = torch.arange(keys.shape[2], device=q.device)
    mask = (reach < lengths[:, None])[:, None, None]
    found = scaled_dot_product_attention(
        q[:, :, None], keys, values, attn_mask=mask, scale=scale, enable_gqa=True
    )[:, :, 0]
    return torch.where(lengths[:, None, None] > 0, found, 0.0)


def sample(logits: Tensor, numbers: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """The tokens [S] at which cumulated probabilities pass the numbers, and log-probabilities."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    log_probs = (logits if temperature == 1 else logits / temperature).log_softmax(-1)
    tokens = inverse(log_probs, numbers)
    return tokens, log_probs.gather(1, tokens[:, None])[:, 0]


def inverse(log_probs: Tensor, numbers: Tensor) -> Tensor:
    """The tokens at which cumulated probabilities pass the numbers, never one without any."""
    probs = log_probs.exp().double()
    sums = probs.cumsum(-1)
    wanted = numbers[:, None].double() * sums[:, -1:]
    return torch.searchsorted(sums, wanted, right=True)[:, 0]
