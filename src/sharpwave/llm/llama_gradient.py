r"""One layer of Llama and its gradient by hand.

Autograd remembers and schedules every operation of a layer, which on a fast device takes longer
than the operations. Here a layer is one operation:

$$x_2 = x + W_o\,\mathrm{attention}(W_q n, W_k n, W_v n), \quad n = \mathrm{norm}(x)$$
$$y = x_2 + W_d\,(\mathrm{silu}(W_g m) \cdot W_u m), \quad m = \mathrm{norm}(x_2)$$

The gradient is compared with autograd's in the tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from sharpwave.llm.attention import SequenceAttention
from sharpwave.primitives.transformer.tensors import (
    gated,
    gated_backward,
    normed,
    normed_backward,
    rotated,
    rotated_back,
)

__all__ = ["LayerWeights", "run_layer"]


class LayerWeights(NamedTuple):
    """Weights of a layer; biases may be None."""

    first: Tensor
    second: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor
    q_bias: Tensor | None = None
    k_bias: Tensor | None = None
    v_bias: Tensor | None = None


class Shape(NamedTuple):
    """Constants of a layer."""

    number: int
    head_dim: int
    scale: float
    first_eps: float
    second_eps: float


@dataclass
class _Kept:
    """Tensors that the backward pass of a layer needs."""

    n: Tensor
    scale: Tensor
    leaves: list[Tensor]
    """Queries and keys, turned, and values."""
    attended: Tensor
    middle: Tensor
    m: Tensor
    middle_scale: Tensor
    gate: Tensor
    up: Tensor
    product: Tensor


def run_layer(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    attention: SequenceAttention,
    weights: LayerWeights,
    shape: Shape,
    *,
    forgets: bool,
) -> Tensor:
    """Hidden states [N, H] after a layer, with gradients.

    Args:
        x: [N, H], contiguous.
        cos: [N, D].
        sin: [N, D].
        attention: Attention over the tokens that belong together.
        weights: Weights of the layer.
        shape: Constants of the layer.
        forgets: Keep nothing but x, and recompute the layer in the backward pass.
    """
    function: Any = _Layer
    found: Tensor = function.apply(x, cos, sin, attention, shape, forgets, *weights)
    return found


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        attention: SequenceAttention,
        shape: Shape,
        forgets: bool,
        *weights: Tensor,
    ) -> Tensor:
        given = LayerWeights(*weights)
        y, kept = _forward(x, cos, sin, attention, given, shape)
        ctx.save_for_backward(x, cos, sin, *weights)
        ctx.attention, ctx.shape = attention, shape
        ctx.kept = None if forgets else kept
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, cos, sin, *weights = ctx.saved_tensors
        given, shape, kept = LayerWeights(*weights), ctx.shape, ctx.kept
        if kept is None:
            kept = _forward(x, cos, sin, ctx.attention, given, shape)[1]
        ctx.kept = None
        needs = LayerWeights(*ctx.needs_input_grad[6:])
        to_x, to_weights = _backward(gradient.contiguous(), x, cos, sin, given, needs, kept)
        return to_x, None, None, None, None, None, *to_weights


def _forward(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    attention: SequenceAttention,
    w: LayerWeights,
    shape: Shape,
) -> tuple[Tensor, _Kept]:
    n, scale = normed(x, w.first, shape.first_eps)
    heads = (len(x), -1, shape.head_dim)
    q, k = (
        rotated(linear(n, weight, bias).view(heads), cos, sin)
        for weight, bias in ((w.q, w.q_bias), (w.k, w.k_bias))
    )
    leaves = [one.detach() for one in (q, k, linear(n, w.v, w.v_bias).view(heads))]
    with torch.enable_grad():  # the gradient of attention itself is torch's
        for leaf in leaves:
            leaf.requires_grad_()
        attended = attention.attend(*leaves, layer=shape.number, scale=shape.scale)
    middle = torch.addmm(x, attended.detach(), w.o.T)
    m, middle_scale = normed(middle, w.second, shape.second_eps)
    gate, up = linear(m, w.gate), linear(m, w.up)
    product = gated(gate, up)
    y = torch.addmm(middle, product, w.down.T)
    return y, _Kept(n, scale, leaves, attended, middle, m, middle_scale, gate, up, product)


def _backward(
    gradient: Tensor,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    w: LayerWeights,
    needs: LayerWeights,
    kept: _Kept,
) -> tuple[Tensor, LayerWeights]:
    """The gradients by x and by the weights that need them."""

    def to_weight(need: Any, coming: Tensor, given: Tensor) -> Any:
        return coming.T @ given if need else None

    # The gated layer.
    to_down = to_weight(needs.down, gradient, kept.product)
    to_gate, to_up = gated_backward(kept.gate, kept.up, gradient @ w.down)
    to_gate_weight = to_weight(needs.gate, to_gate, kept.m)
    to_up_weight = to_weight(needs.up, to_up, kept.m)
    to_m = torch.addmm(to_gate @ w.gate, to_up, w.up)
    to_middle, to_second = normed_backward(
        to_m, kept.middle, w.second, kept.middle_scale, add=gradient
    )

    # Attention.
    to_o = to_weight(needs.o, to_middle, kept.attended.detach())
    to_q, to_k, to_v = torch.autograd.grad(kept.attended, kept.leaves, to_middle @ w.o)
    to_q, to_k = (rotated_back(one, cos, sin).flatten(1) for one in (to_q, to_k))
    to_v = to_v.flatten(1)
    to_n = torch.addmm(torch.addmm(to_q @ w.q, to_k, w.k), to_v, w.v)
    to_x, to_first = normed_backward(to_n, x, w.first, kept.scale, add=to_middle)
    return to_x, LayerWeights(
        first=to_first,
        second=to_second,
        q=to_weight(needs.q, to_q, kept.n),
        k=to_weight(needs.k, to_k, kept.n),
        v=to_weight(needs.v, to_v, kept.n),
        o=to_o,
        gate=to_gate_weight,
        up=to_up_weight,
        down=to_down,
        q_bias=to_q.sum(0) if needs.q_bias else None,
        k_bias=to_k.sum(0) if needs.k_bias else None,
        v_bias=to_v.sum(0) if needs.v_bias else None,
    )
