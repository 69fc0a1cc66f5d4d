"""The hyperbolic tangent of many numbers on the CPU, several times as quick as torch's own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["is_quick_tanh", "quick_tanh_"]

MANY = 1 << 16
"""Numbers from which on it is worth more than what autograd adds to it."""


def is_quick_tanh(layer: nn.Module, x: Tensor) -> bool:
    """Return whether `quick_tanh_` can take the place of a layer that is given x."""
    is_plain = type(layer) is nn.Tanh and not (layer._forward_hooks or layer._forward_pre_hooks)
    is_large = x.numel() >= MANY and x.is_cpu and x.dtype == torch.float32
    return is_plain and is_large and not torch.compiler.is_compiling()


def quick_tanh_(x: Tensor) -> Tensor:
    """The hyperbolic tangent in the place of x, which no other gradient may need.

    tanh x = 2σ(2x) − 1, up to 2e-7. torch computes σ ten times as fast as tanh.

    Example:
        >>> quick_tanh_(torch.tensor([0.0, 0.5, -100.0])).tolist()
        [0.0, 0.462..., -1.0]
    """
    needs_grad = torch.is_grad_enabled() and x.requires_grad
    return _Tanh.apply(x) if needs_grad else _tanh_(x)  # type: ignore[no-untyped-call]


def _tanh_(x: Tensor) -> Tensor:
    return x.mul_(2.0).sigmoid_().mul_(2.0).sub_(1.0)


class _Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        y = _tanh_(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return torch.ops.aten.tanh_backward(grads[0], y)  # type: ignore[no-any-return]
