"""Row-wise functions of a world model's step, each in one pass over memory.

On a CPU native code computes them, on a GPU Triton, and elsewhere torch as it defines them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sharpwave import _native
from sharpwave.primitives.backend import HAS_TRITON, uses_triton
from sharpwave.primitives.world import plain as plain

if HAS_TRITON:
    from sharpwave.primitives.world import triton as jit

__all__ = [
    "draw_classes",
    "draw_classes_backward",
    "norm_silu",
    "norm_silu_backward",
    "norm_silu_rows",
    "remember",
    "remember_backward",
    "two_hot_loss",
    "two_hot_mean",
]


def _module(like: Tensor, *others: Tensor) -> Any:
    """The module that computes: all tensors are of one kind, but for those always float32."""
    if uses_triton(like):
        return jit
    of_native = like.device.type == "cpu" and all(
        one.dtype == torch.float32 and one.numel() for one in (like, *others)
    )
    return _native if of_native else plain


def norm_silu(x: Tensor, scale: Tensor) -> Tensor:
    """SiLU of rows x / sqrt(mean(x²) + 1e-4) times a scale; with gradients.

    Args:
        x: [..., n].
        scale: [n].

    Example:
        >>> norm_silu(torch.tensor([[100.0, -100.0]]), torch.ones(2)).tolist()
        [[0.7310585975646973, -0.2689414322376251]]
    """
    if torch.compiler.is_compiling():  # which fuses the definition with the code around it
        return plain.norm_silu(x, scale)
    if torch.is_grad_enabled() and (x.requires_grad or scale.requires_grad):
        y: Tensor = _NormSiLU.apply(x, scale)  # type: ignore[no-untyped-call]
        return y
    return _norm_silu(x.detach().contiguous(), scale.detach())


def _norm_silu(x: Tensor, scale: Tensor) -> Tensor:
    y: Tensor = _module(x, scale).norm_silu(x, scale)
    return y


def norm_silu_backward(x: Tensor, scale: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of `norm_silu` by x and by the scale, from that of its result; all contiguous."""
    found: tuple[Tensor, Tensor] = _module(x, scale, grad).norm_silu_backward(x, scale, grad)
    return found


def norm_silu_rows(x: Tensor, scale: Tensor, grad: Tensor) -> Tensor:
    """The gradient of `norm_silu` by x alone."""
    module = _module(x, scale, grad)
    if module is not _native and module is not plain:
        return jit.norm_silu_rows(x, scale, grad)
    of_x: Tensor = module.norm_silu_backward(x, scale, grad)[0]
    return of_x


class _NormSiLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
        x = x.contiguous()
        ctx.save_for_backward(x, scale)
        return _norm_silu(x, scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, scale = ctx.saved_tensors
        return norm_silu_backward(x, scale, grad.contiguous())


def remember(gates: Tensor, before: Tensor) -> Tensor:
    """Output of a block-wise recurrent unit; without gradients of its own.

    u tanh(σ(r) c) + (1 − u) before, with u = σ(z − 1).

    Args:
        gates: [K, B, 3 n], of each block r, c and z; contiguous.
        before: [B, K n], contiguous.
    """
    after: Tensor = _module(gates, before).remember(gates, before)
    return after


def remember_backward(gates: Tensor, before: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of `remember` by gates and by what was before, from that of its result."""
    found: tuple[Tensor, Tensor] = _module(gates, before, grad).remember_backward(
        gates, before, grad
    )
    return found


def draw_classes(logits: Tensor, noise: Tensor, share: float) -> Tensor:
    """One-hot draws, the largest of log((1 − share) softmax(logits) + share / C) + noise.

    Args:
        logits: [..., C], contiguous.
        noise: [..., C] of Gumbel's distribution, contiguous.
        share: Share of the uniform distribution.
    """
    drawn: Tensor = _module(logits, noise).draw_classes(logits, noise, share)
    return drawn


def draw_classes_backward(logits: Tensor, grad: Tensor, share: float) -> Tensor:
    """The gradient of these probabilities by logits, in the place of that of the draws."""
    found: Tensor = _module(logits, grad).draw_classes_backward(logits, grad, share)
    return found


def two_hot_mean(logits: Tensor, bins: Tensor) -> Tensor:
    """The mean [...] of distributions [..., n] over symmetric bins [n]; without gradients."""
    if torch.compiler.is_compiling():
        return plain.two_hot_mean(logits, bins)
    mean: Tensor = _module(logits, bins).two_hot_mean(logits.detach().contiguous(), bins)
    return mean


def two_hot_loss(
    logits: Tensor, bins: Tensor, targets: Sequence[Tensor], weights: Sequence[float]
) -> Tensor:
    """Cross-entropies [...] with targets that are spread over the two bins around them.

    Args:
        logits: [..., n].
        bins: [n], ascending.
        targets: Some [...], each with a cross-entropy of its own.
        weights: By which these are added up.
    """
    many = torch.stack([target.detach().to(bins.dtype) for target in targets])
    if torch.compiler.is_compiling():
        fixed = torch.tensor(weights, dtype=bins.dtype, device=bins.device)
        return plain.two_hot_loss(logits, bins, many, fixed)
    shares = _weights(tuple(weights), bins.dtype, bins.device)
    module = _module(logits, bins)
    if module is plain:
        return plain.two_hot_loss(logits, bins, many, shares)
    loss: Tensor = _TwoHotLoss.apply(module, logits, bins, many, shares)  # type: ignore[no-untyped-call]
    return loss


@cache
def _weights(weights: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Weights on a device, copied there once."""
    return torch.tensor(weights, dtype=dtype, device=device)


class _TwoHotLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, module: Any, logits: Tensor, bins: Tensor, targets: Tensor, weights: Tensor
    ) -> Tensor:
        ctx.module, logits = module, logits.contiguous()
        ctx.save_for_backward(logits, bins, targets, weights)
        loss: Tensor = module.two_hot_loss(logits, bins, targets, weights)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        found = ctx.module.two_hot_loss_backward(*ctx.saved_tensors, grad.contiguous())
        return None, found, None, None, None
