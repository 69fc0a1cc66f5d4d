"""Multi-layer perceptrons as one operation of autograd.

Layer by layer, autograd reads and writes every activation several times: for the bias and the
function forwards, for its derivative and for the sum over rows backwards. Here a layer is a matrix
product and one pass over its result, in both directions. Under autocast to bfloat16 activations and
their gradients are bfloat16; biases, their gradients and those of weights stay float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from sharpwave.primitives.backend import HAS_TRITON, uses_triton
from sharpwave.primitives.mlp import plain as plain
from sharpwave.primitives.mlp.plain import Activation

if HAS_TRITON:
    from sharpwave.primitives.mlp import triton as jit

__all__ = ["Activation", "activation_of", "mlp"]


PLAIN: dict[type[nn.Module], str] = {
    nn.Tanh: "tanh", nn.ReLU: "relu", nn.SELU: "selu", nn.SiLU: "silu",
}  # fmt: skip
"""Activations without a parameter."""


def activation_of(module: nn.Module) -> Activation | None:
    """The activation that a module is, None for a module that is none of ours.

    Example:
        >>> activation_of(nn.LeakyReLU(0.25))
        Activation(name='leaky_relu', slope=0.25)
    """
    kind = type(module)
    if isinstance(module, nn.ELU) and kind is nn.ELU:
        return Activation("elu", float(module.alpha)) if module.alpha > 0 else None
    if isinstance(module, nn.LeakyReLU) and kind is nn.LeakyReLU:
        slope = float(module.negative_slope)
        return Activation("leaky_relu", slope) if slope > 0 else None
    if isinstance(module, nn.GELU) and kind is nn.GELU:
        return Activation("gelu") if module.approximate == "none" else None
    return Activation(PLAIN[kind]) if kind in PLAIN else None


def mlp(
    x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], activation: Activation
) -> tuple[Tensor, Tensor]:
    """Linear layers with an activation after each but the last; with gradients.

    Args:
        x: [M, in].
        weights: [out, in] of two or more layers, of one dtype.
        biases: [out] of each.
        activation: Between the layers.

    Returns:
        The output [M, out], and what the last layer was given.

    Example:
        >>> x, weights = torch.ones(1, 2), [torch.ones(3, 2), -torch.ones(1, 3)]
        >>> biases = [torch.zeros(3), torch.ones(1)]
        >>> mlp(x, weights, biases, Activation("relu"))
        (tensor([[-5.]]), tensor([[2., 2., 2.]]))
    """
    found: tuple[Tensor, Tensor] = _MLP.apply(x, activation, *weights, *biases)  # type: ignore[no-untyped-call]
    return found


class _MLP(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, activation: Activation, *parameters: Tensor
    ) -> tuple[Tensor, Tensor]:
        depth = len(parameters) // 2
        first, *weights = _cast(x, *parameters[:depth])
        biases, inputs, kept = parameters[depth:], [first], []
        module: Any = jit if uses_triton(x) else plain
        with torch.autocast(x.device.type, enabled=False):
            for weight, bias in zip(weights[:-1], biases, strict=False):
                h, state = module.forward(inputs[-1], weight, bias, activation)
                inputs.append(h)
                kept.append(state)
            output = torch.addmm(biases[-1].to(first.dtype), inputs[-1], weights[-1].t())
        ctx.save_for_backward(x, *parameters, *weights, *inputs, *kept)
        ctx.activation, ctx.depth = activation, depth
        ctx.set_materialize_grads(False)
        return output, inputs[-1]

    @staticmethod
    def backward(
        ctx: Any, grad: Tensor | None, grad_latent: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        depth, saved = ctx.depth, list(ctx.saved_tensors)
        x, parameters, rest = saved[0], saved[1 : 2 * depth + 1], saved[2 * depth + 1 :]
        if torch.is_grad_enabled():  # gradients that are to be differentiated themselves
            return _differentiable(x, parameters, ctx.activation, grad, grad_latent)
        weights, inputs, kept = rest[:depth], rest[depth : 2 * depth], rest[2 * depth :]
        dtype = parameters[0].dtype
        module: Any = jit if uses_triton(x) else plain
        of_x, wanted = ctx.needs_input_grad[0], ctx.needs_input_grad[2 : 2 + depth]
        of_weights: list[Tensor | None] = [None] * depth
        parts = _Parts(module, x, weights, dtype)
        with torch.autocast(x.device.type, enabled=False):
            if grad is None:
                grad = x.new_zeros(len(x), len(weights[-1]))
            g = grad.to(inputs[0].dtype).contiguous()
            module.column_sums(g, parts.of(depth - 1))
            for k in range(depth - 1, -1, -1):
                if wanted[k]:
                    of_weights[k] = module.of_weight(g, inputs[k], dtype)
                if k:
                    beside = grad_latent if k == depth - 1 else None
                    after = g, weights[k], beside
                    g = module.backward(*after, kept[k - 1], ctx.activation, parts.of(k - 1))
            of_input = torch.mm(g, weights[0]).to(x.dtype) if of_x else None
        return (of_input, None, *of_weights, *parts.sums())


def _differentiable(
    x: Tensor,
    parameters: Sequence[Tensor],
    activation: Activation,
    grad: Tensor | None,
    grad_latent: Tensor | None,
) -> tuple[Tensor | None, ...]:
    """The gradients, layer by layer, so that they have gradients too."""
    depth = len(parameters) // 2
    leaves = [x, *parameters]
    h = x
    for weight, bias in zip(parameters[: depth - 1], parameters[depth:], strict=False):
        h = plain.function_of(activation)(linear(h, weight, bias))
    outputs = [linear(h, parameters[depth - 1], parameters[-1]), h]
    pairs = [(y, g) for y, g in zip(outputs, (grad, grad_latent), strict=True) if g is not None]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    found = iter(
        torch.autograd.grad(
            [y for y, _ in pairs], wanted, [g for _, g in pairs],
            create_graph=True, allow_unused=True,
        )
    )  # fmt: skip
    of_x, *rest = [next(found) if leaf.requires_grad else None for leaf in leaves]
    return (of_x, None, *rest)


class _Parts:
    """The sums over rows that are the gradients of biases, in parts, of all layers in one block."""

    def __init__(
        self, module: Any, x: Tensor, weights: Sequence[Tensor], dtype: torch.dtype
    ) -> None:
        self._widths = [len(weight) for weight in weights]
        self._ends = list(accumulate(self._widths))
        n_parts = 1 if module is plain else module.n_parts(len(x))
        self._block = torch.empty((n_parts, self._ends[-1]), dtype=dtype, device=x.device)
        self._module = module

    def of(self, layer: int) -> Tensor:
        """[P, n] of a layer."""
        end = self._ends[layer]
        return self._block[:, end - self._widths[layer] : end]

    def sums(self) -> Sequence[Tensor]:
        """[n] of each layer."""
        sums: Tensor = self._module.sum_parts(self._block)
        return torch.split(sums, self._widths)


def _cast(x: Tensor, *weights: Tensor) -> Sequence[Tensor]:
    """The factors of products, in the dtype of autocast, where that is on."""
    kind = x.device.type
    if not torch.is_autocast_enabled(kind):
        return x, *weights
    dtype = torch.get_autocast_dtype(kind)
    cast = [torch.empty_like(weight, dtype=dtype) for weight in weights]
    torch._foreach_copy_(cast, list(weights))  # all at once
    return x.to(dtype), *cast
