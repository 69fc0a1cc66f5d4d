"""One token through the layers of Llama and its kin, without what stands around the arithmetic.

A step of a small model in transformers spends most of its time between the operations. Here the
same operations are done on the same weights. Whether they are the same is not taken on trust:
whoever uses this compares it with the model first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

__all__ = ["LlamaStep"]

_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_MLP = ("gate_proj", "up_proj", "down_proj")


class LlamaStep:
    """The decoder of a model whose layers are made like those of Llama, for one token at a time.

    Args:
        decoder: Embedding, layers, a last norm and rotary positions, by Llama's names.

    Raises:
        TypeError: The decoder is made otherwise.
    """

    def __init__(self, decoder: Any) -> None:
        try:
            self._decoder = decoder
            self._layers = [_Layer(layer, index) for index, layer in enumerate(decoder.layers)]
            self._norm = _norm_of(decoder.norm)
            _ = decoder.rotary_emb, decoder.embed_tokens.weight
        except AttributeError as error:
            raise TypeError(f"decoder must be made like Llama's: {error}") from None

    def __call__(self, ids: Tensor, positions: Tensor, cache: Any, mask: Tensor) -> Tensor:
        """Hidden states [S, H] after tokens [S] at positions [S, 1], which attend by a mask."""
        x = self._decoder.embed_tokens(ids[:, None])
        cos, sin = self._decoder.rotary_emb(x, position_ids=positions)
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        for layer in self._layers:
            x = layer(x, cos, sin, cache, mask)
        norm, eps = self._norm
        return rms_norm(x[:, 0], norm.weight.shape, norm.weight, eps)


class _Layer:
    def __init__(self, layer: Any, index: int) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.index, self.head_dim, self.scale = index, attention.head_dim, attention.scaling
        self.projections = [_linear(getattr(attention, name)) for name in _ATTENTION]
        self.mlp = [_linear(getattr(mlp, name)) for name in _MLP]
        self.first, self.second = map(
            _norm_of, (layer.input_layernorm, layer.post_attention_layernorm)
        )
        self.q_norm, self.k_norm = (
            _norm_of(getattr(attention, name)) if hasattr(attention, name) else None
            for name in ("q_norm", "k_norm")
        )

    def __call__(self, x: Tensor, cos: Tensor, sin: Tensor, cache: Any, mask: Tensor) -> Tensor:
        n_rows, _, hidden = x.shape
        norm, eps = self.first
        normed = rms_norm(x, (hidden,), norm.weight, eps)
        q_proj, k_proj, v_proj, o_proj = self.projections
        heads = (n_rows, 1, -1, self.head_dim)
        q = linear(normed, q_proj.weight, q_proj.bias).view(heads)
        k = linear(normed, k_proj.weight, k_proj.bias).view(heads)
        v = linear(normed, v_proj.weight, v_proj.bias).view(heads).transpose(1, 2)
        if self.q_norm is not None and self.k_norm is not None:
            q = rms_norm(q, (self.head_dim,), self.q_norm[0].weight, self.q_norm[1])
            k = rms_norm(k, (self.head_dim,), self.k_norm[0].weight, self.k_norm[1])
        q, k = _rotated(q.transpose(1, 2), cos, sin), _rotated(k.transpose(1, 2), cos, sin)
        is_shared = k.shape[1] != q.shape[1]  # keys and values of several heads
        k, v = cache.update(k, v, self.index)
        attended = scaled_dot_product_attention(
            q, k, v, attn_mask=mask, scale=self.scale, enable_gqa=is_shared
        )
        x = x + linear(attended.view(n_rows, 1, -1), o_proj.weight, o_proj.bias)
        norm, eps = self.second
        normed = rms_norm(x, (hidden,), norm.weight, eps)
        gate, up, down = self.mlp
        gated = silu(linear(normed, gate.weight, gate.bias)) * linear(normed, up.weight, up.bias)
        return x + linear(gated, down.weight, down.bias)


def _linear(module: Any) -> nn.Linear:
    if type(module) is not nn.Linear:  # that of an adapter computes more
        raise AttributeError(f"{type(module).__name__} is not a plain linear layer")
    return module


def _norm_of(module: Any) -> tuple[Any, float]:
    """A norm, whose weight may be replaced, and what it adds to the variance."""
    _ = module.weight
    return module, float(module.variance_epsilon)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin
