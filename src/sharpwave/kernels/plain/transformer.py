"""Parts of a transformer in plain torch, as the Triton kernels have them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention, silu


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up."""
    return silu(gate) * up


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Heads [N, H, D] turned by the angles [N, D] of their positions."""
    first, second = x.chunk(2, -1)
    turned = torch.cat([-second, first], -1)
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
