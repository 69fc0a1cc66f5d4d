"""The layers of Llama and its kin on tokens without padding, without what stands around them.

transformers spends much of a small model's time between the operations, and much of a large one's
in passes over memory that can be one. Here the same operations are done on the same weights.
Whether they are the same is not taken on trust: whoever uses this compares it with the model first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm
from torch.utils.checkpoint import checkpoint

from sharpwave.llm.attention import Attention, SequenceAttention
from sharpwave.llm.llama_gradient import LayerWeights, Shape, run_layer
from sharpwave.primitives.backend import uses_triton
from sharpwave.primitives.transformer.tensors import gated

__all__ = ["LlamaLayers"]

Linear = Callable[[Tensor], Tensor]

_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_MLP = ("gate_proj", "up_proj", "down_proj")


class LlamaLayers:
    """The decoder of a model whose layers are made like those of Llama.

    Args:
        decoder: Embedding, layers, a last norm and rotary positions, by Llama's names.

    Raises:
        TypeError: The decoder is made otherwise.
    """

    def __init__(self, decoder: Any) -> None:
        try:
            self._decoder = decoder
            self._layers = [_Layer(layer, index) for index, layer in enumerate(decoder.layers)]
            self._norm = _Norm(decoder.norm)
            _ = decoder.rotary_emb, decoder.embed_tokens.weight
            self._modules = list(decoder.modules())
        except AttributeError as error:
            raise TypeError(f"decoder must be made like Llama's: {error}") from None

    @property
    def is_whole(self) -> bool:
        """True if calling the modules would do the same.

        Modules may be replaced, have hooks, such as those of sharding, or another `forward`; of
        those that are called here too, that is nothing.
        """
        called = self._decoder.embed_tokens, self._decoder.rotary_emb
        modules = list(self._decoder.modules())
        return len(modules) == len(self._modules) and not any(
            now is not then
            or now._forward_hooks
            or now._forward_pre_hooks
            or "forward" in vars(now)
            for now, then in zip(modules, self._modules, strict=True)
            if now not in called
        )

    def __call__(self, ids: Tensor, positions: Tensor, attention: Attention) -> Tensor:
        """Hidden states [N, H] of tokens [N] at positions [N]."""
        x = self._decoder.embed_tokens(ids)
        cos, sin = (angle[0] for angle in self._decoder.rotary_emb(x, position_ids=positions[None]))
        for layer in self._layers:
            x = layer(x, cos, sin, attention)
        return self._norm(x)


class _Layer:
    def __init__(self, layer: Any, index: int) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        if getattr(attention, "attention_dropout", 0):
            raise AttributeError("attention that drops out")
        self._module = layer
        self.index, self.head_dim, self.scale = index, attention.head_dim, attention.scaling
        self.projections = [getattr(attention, name) for name in _ATTENTION]
        self.mlp = [getattr(mlp, name) for name in _MLP]
        self.first = _Norm(layer.input_layernorm)
        self.second = _Norm(layer.post_attention_layernorm)
        self.shape = Shape(index, self.head_dim, self.scale, self.first.eps, self.second.eps)
        self.norms = [
            _Norm(getattr(attention, name)) if hasattr(attention, name) else None
            for name in ("q_norm", "k_norm")
        ]

    @property
    def forgets(self) -> bool:
        """True if the model recomputes its layers in the backward pass (gradient checkpointing)."""
        return bool(getattr(self._module, "gradient_checkpointing", False))

    def __call__(self, x: Tensor, cos: Tensor, sin: Tensor, attention: Attention) -> Tensor:
        if torch.is_grad_enabled() and isinstance(attention, SequenceAttention):
            # On a CPU autograd takes less than what kernels do in one pass.
            weights = self.weights() if uses_triton(x) else None
            if weights is not None:
                return run_layer(x, cos, sin, attention, weights, self.shape, forgets=self.forgets)
            if self.forgets:
                found: Tensor = checkpoint(
                    self.composed, x, cos, sin, attention, use_reentrant=False
                )
                return found
        return self.composed(x, cos, sin, attention)

    def weights(self) -> LayerWeights | None:
        """Weights of a layer of plain matrix products; None for one that has more."""
        q, k, v, o = self.projections
        gate, up, down = self.mlp
        modules = (q, k, v, o, gate, up, down)
        if self.norms[0] is not None or not all(map(_is_plain, modules)):
            return None
        if any(module.bias is not None for module in modules[3:]):
            return None
        first, second = self.first.weight, self.second.weight
        products = [module.weight for module in modules]
        return LayerWeights(first, second, *products, *(one.bias for one in (q, k, v)))

    def composed(self, x: Tensor, cos: Tensor, sin: Tensor, attention: Attention) -> Tensor:
        """The layer of single operations, whose gradient is autograd's."""
        normed = self.first(x)
        heads = (len(x), -1, self.head_dim)
        q, k, v = (_applied(module, normed).view(heads) for module in self.projections[:3])
        q, k = (
            one if norm is None else norm(one) for norm, one in zip(self.norms, (q, k), strict=True)
        )
        attended = attention(q, k, v, cos, sin, layer=self.index, scale=self.scale)
        x = _added(x, self.projections[3], attended)
        normed = self.second(x)
        gate, up = (_applied(module, normed) for module in self.mlp[:2])
        return _added(x, self.mlp[2], gated(gate, up))


class _Norm:
    """A norm by the root of the mean square, whose weight may be replaced."""

    def __init__(self, module: Any) -> None:
        _ = module.weight
        self._module, self.eps = module, float(module.variance_epsilon)

    @property
    def weight(self) -> Tensor:
        """The scale that rows are multiplied by."""
        weight: Tensor = self._module.weight
        return weight

    def __call__(self, x: Tensor) -> Tensor:
        weight = self.weight
        return rms_norm(x, weight.shape, weight, self.eps)


def _applied(module: Any, x: Tensor) -> Tensor:
    """A linear layer; one with an adapter computes more, and is called itself."""
    if _is_plain(module):
        return linear(x, module.weight, module.bias)
    found: Tensor = module(x)
    return found


def _added(x: Tensor, module: Any, y: Tensor) -> Tensor:
    """X and a linear layer of y; a product can begin with what it is added to."""
    if x.is_cuda and _is_plain(module) and module.bias is None:
        return torch.addmm(x, y, module.weight.T)
    return x + _applied(module, y)


def _is_plain(module: Any) -> bool:
    return type(module) is nn.Linear
