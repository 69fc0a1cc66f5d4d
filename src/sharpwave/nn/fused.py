"""Multi-layer perceptrons as one operation of autograd, for the CPU.

Layer by layer, autograd takes longer around the products than its arithmetic does: it allocates
every intermediate anew, multiplies narrow heads in the slow order, and keeps a graph of some dozen
nodes. Here the forward pass is one function and the backward pass another, with activations in
place, and with rows in pieces that stay in the cache. Large activations come from memory that is
used again and again, since getting it from the system costs more than filling it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["can_fuse", "fused_mlp"]

PIECE = 512
"""Rows that go through the layers together."""
MANY = 2048
"""Rows from which on this is quicker than layer by layer."""
NARROW = 32
"""Columns of a product below which the transposed one is several times quicker."""
LARGE = 1 << 20
"""Elements of an activation from which on its memory is kept."""
MOST_KEPT = 4
"""Memories of one size that are kept."""

_kept: dict[tuple[int, ...], list[Tensor]] = {}


def can_fuse(x: Tensor, activation: nn.Module) -> bool:
    """Return whether `fused_mlp` can take the place of the layers."""
    kind = type(activation)
    known = kind is nn.ReLU or kind is nn.Tanh
    many = x.shape[-2] >= MANY
    return many and x.is_cpu and known and not torch.compiler.is_compiling()


def fused_mlp(
    x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], activation: nn.Module, n: int
) -> Tensor:
    """Several networks of linear layers with an activation after every layer but the last.

    Args:
        x: [B, in] for all networks, or [n, B, in] for each its own.
        weights: [n, in, out] of each layer; or [out, in] with n = 1, as `nn.Linear` has them.
        biases: [n, 1, out] of each layer, or [out].
        activation: `nn.ReLU` or `nn.Tanh`.
        n: Number of networks.

    Returns:
        [n, B, out].
    """
    parameters = [*weights, *biases]
    relu = type(activation) is nn.ReLU
    if torch.is_grad_enabled() and (
        x.requires_grad or any(parameter.requires_grad for parameter in parameters)
    ):
        return _FusedMLP.apply(x, relu, n, *parameters)  # type: ignore[no-any-return, no-untyped-call]
    return _forward(x, parameters, relu, n, None)


class _FusedMLP(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, relu: bool, n: int, *parameters: Tensor) -> Tensor:
        rows, depth = x.shape[-2], len(parameters) // 2
        hidden = [_take((n, rows, _width(weight))) for weight in parameters[: depth - 1]]
        output = _forward(x, parameters, relu, n, hidden)
        ctx.save_for_backward(x, *parameters)
        ctx.hidden, ctx.relu = hidden, relu
        return output

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.hidden is None:
            raise RuntimeError("a fused network can be differentiated only once")
        x, *parameters = ctx.saved_tensors
        needed = ctx.needs_input_grad
        wanted = any(needed[3:])
        grad_x, grads = _backward(grad, x, parameters, ctx.hidden, ctx.relu, needed[0], wanted)
        for memory in ctx.hidden:
            _give_back(memory)
        ctx.hidden = None
        return (grad_x, None, None, *grads)


def _forward(
    x: Tensor, parameters: Sequence[Tensor], relu: bool, n: int, hidden: list[Tensor] | None
) -> Tensor:
    """The output, and the activations of the hidden layers where their place is given."""
    depth = len(parameters) // 2
    weights, biases = parameters[:depth], parameters[depth:]
    rows = x.shape[-2]
    output = x.new_empty((n, rows, _width(weights[-1])))
    for i in range(n):
        inputs = x if x.ndim == 2 else x[i]
        layers = [
            (_matrix(w, i), b if b.ndim == 1 else b[i, 0])
            for w, b in zip(weights, biases, strict=True)
        ]
        for begin in range(0, rows, PIECE):
            part = slice(begin, begin + PIECE)
            h = inputs[part]
            for k, (weight, bias) in enumerate(layers[:-1]):
                if hidden is None:
                    h = torch.addmm(bias, h, weight)
                else:
                    h = torch.addmm(bias, h, weight, out=hidden[k][i, part])
                h = h.relu_() if relu else h.tanh_()
            weight, bias = layers[-1]
            if weight.shape[1] == 1:
                torch.addmv(bias, h, weight[:, 0], out=output[i, part, 0])
            else:
                torch.addmm(bias, h, weight, out=output[i, part])
    return output


def _backward(
    grad: Tensor,
    x: Tensor,
    parameters: Sequence[Tensor],
    hidden: Sequence[Tensor],
    relu: bool,
    wants_x: bool,
    wants_parameters: bool,
) -> tuple[Tensor | None, list[Tensor | None]]:
    """Gradients of the input and of the parameters."""
    depth = len(parameters) // 2
    weights = parameters[:depth]
    n, rows, _ = grad.shape
    grad_x = torch.empty_like(x) if wants_x else None
    grads: list[Any] = [None] * len(parameters)
    if wants_parameters:
        grads = [torch.empty_like(parameter) for parameter in parameters]
    widest = max(_width(weight) for weight in weights)
    buffers = grad.new_empty((2, min(rows, PIECE) * widest))
    for i in range(n):
        inputs = x if x.ndim == 2 else x[i]
        matrices = [_matrix(weight, i) for weight in weights]
        for begin in range(0, rows, PIECE):
            part = slice(begin, begin + PIECE)
            g = grad[i, part]
            for k in range(depth - 1, -1, -1):
                h = hidden[k - 1][i, part] if k else inputs[part]
                if wants_parameters:
                    _add_gradient(grads[k], grads[depth + k], weights[k], i, h, g, begin > 0)
                if k:
                    size = len(h), h.shape[1]
                    out = buffers[k % 2, : size[0] * size[1]].view(size)
                    if g.shape[1] == 1:
                        torch.mul(g, matrices[k].t(), out=out)
                    else:
                        torch.mm(g, matrices[k].t(), out=out)
                    g = _through_activation(out, h, relu)
                elif grad_x is not None:
                    place = grad_x[part] if x.ndim == 2 else grad_x[i, part]
                    if x.ndim == 2 and i:
                        place.addmm_(g, matrices[0].t())
                    else:
                        torch.mm(g, matrices[0].t(), out=place)
    return grad_x, grads


def _add_gradient(
    grad_weight: Tensor, grad_bias: Tensor, weight: Tensor, i: int, h: Tensor, g: Tensor, more: bool
) -> None:
    """Writes the gradients of one layer of network i, or adds to them."""
    of_linear = weight.ndim == 2
    place = grad_weight if of_linear else grad_weight[i]
    bias = grad_bias if of_linear else grad_bias[i, 0]
    if g.shape[1] == 1:
        column = place[0] if of_linear else place[:, 0]
        torch.addmv(column, h.t(), g[:, 0], beta=float(more), out=column)
    elif not of_linear:
        torch.addmm(place, h.t(), g, beta=float(more), out=place)
    elif h.shape[1] < NARROW:
        product = torch.mm(h.t(), g).t()
        place.add_(product) if more else place.copy_(product)
    else:
        torch.addmm(place, g.t(), h, beta=float(more), out=place)
    if more:
        bias.add_(g.sum(0))
    else:
        torch.sum(g, 0, out=bias)


def _through_activation(g: Tensor, h: Tensor, relu: bool) -> Tensor:
    """The gradient before the activation that gave h, in the place of that after it."""
    if relu:
        torch.ops.aten.threshold_backward.grad_input(g, h, 0, grad_input=g)
    else:
        torch.ops.aten.tanh_backward.grad_input(g, h, grad_input=g)
    return g


def _matrix(weight: Tensor, i: int) -> Tensor:
    """[in, out] of network i."""
    return weight.t() if weight.ndim == 2 else weight[i]


def _width(weight: Tensor) -> int:
    return weight.shape[0] if weight.ndim == 2 else weight.shape[2]


def _take(shape: tuple[int, ...]) -> Tensor:
    """Memory for an activation: some that was given back, where there is."""
    kept = _kept.get(shape)
    return kept.pop() if kept else torch.empty(shape)


def _give_back(memory: Tensor) -> None:
    if memory.numel() >= LARGE:
        kept = _kept.setdefault(tuple(memory.shape), [])
        if len(kept) < MOST_KEPT:
            kept.append(memory)
