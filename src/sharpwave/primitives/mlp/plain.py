"""Linear layers with activations, and their gradients, in plain torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import elu, gelu, leaky_relu, selu, silu

SELU_SCALE, SELU_SLOPE = 1.0507009873554804934, 1.6732632423543772848


class Activation(NamedTuple):
    """An elementwise function between two linear layers.

    Attributes:
        name: `tanh`, `relu`, `elu`, `selu`, `leaky_relu`, `silu` or `gelu`.
        slope: The α of elu, which is positive, or the slope of leaky relu below 0.
    """

    name: str
    slope: float = 0.0

    @property
    def keeps_input(self) -> bool:
        """True if the output does not tell the derivative."""
        return self.name in ("silu", "gelu")


def function_of(activation: Activation) -> Callable[[Tensor], Tensor]:
    """The activation as a function of tensors."""
    slope = activation.slope
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "tanh": torch.tanh,
        "relu": torch.relu,
        "elu": lambda x: elu(x, slope),
        "selu": selu,
        "leaky_relu": lambda x: leaky_relu(x, slope),
        "silu": silu,
        "gelu": gelu,
    }
    return functions[activation.name]


def derivative(kept: Tensor, activation: Activation) -> Tensor:
    """The derivative, from the output of the activation or, where that does not tell, its input."""
    name, slope = activation
    if name == "tanh":
        return 1 - kept.square()
    if name == "relu":
        return (kept > 0).to(kept.dtype)
    if name == "elu":
        return torch.where(kept > 0, 1.0, kept + slope)
    if name == "selu":
        return torch.where(kept > 0, SELU_SCALE, kept + SELU_SCALE * SELU_SLOPE)
    if name == "leaky_relu":
        return torch.where(kept > 0, 1.0, slope)
    if name == "silu":
        share = kept.sigmoid()
        return share * (1 + kept * (1 - share))
    density = (-0.5 * kept.square()).exp() / math.sqrt(2 * math.pi)
    return 0.5 * (1 + torch.erf(kept / math.sqrt(2))) + kept * density


def forward(
    x: Tensor, weight: Tensor, bias: Tensor, activation: Activation
) -> tuple[Tensor, Tensor]:
    """The activation [M, n] of x [M, k] times a weight [n, k] plus a bias, and what is kept."""
    z = torch.mm(x, weight.t()).add_(bias)
    h = function_of(activation)(z)
    return h, z if activation.keeps_input else h


def backward(
    grad: Tensor,
    weight: Tensor,
    beside: Tensor | None,
    kept: Tensor,
    activation: Activation,
    parts: Tensor,
) -> Tensor:
    """The gradient before an activation, from that of the product with a weight [n, k] after it."""
    g = torch.mm(grad, weight)
    if beside is not None:
        g.add_(beside)
    g.mul_(derivative(kept, activation))
    column_sums(g, parts)
    return g


def of_weight(grad: Tensor, x: Tensor, dtype: torch.dtype) -> Tensor:
    """The gradient of a weight, rounded to its dtype once where the device can."""
    if grad.dtype == dtype:
        return torch.mm(grad.t(), x)
    if grad.is_cuda:
        return torch.mm(grad.t(), x, out_dtype=dtype)
    return torch.mm(grad.t(), x).to(dtype)


def column_sums(grad: Tensor, parts: Tensor) -> None:
    """Write parts [P, n] of the sums over the rows of a gradient."""
    parts.zero_()
    torch.sum(grad, 0, dtype=parts.dtype, out=parts[0])


def sum_parts(parts: Tensor) -> Tensor:
    """The sums [n] of parts [P, n]."""
    return parts.sum(0)
