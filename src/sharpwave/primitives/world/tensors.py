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
from torch.nn.functional import linear as torch_linear

from sharpwave import _native
from sharpwave.primitives.backend import HAS_TRITON, uses_triton
from sharpwave.primitives.world import plain as plain

if HAS_TRITON:
    from sharpwave.primitives.world import triton as jit

__all__ = [
    "draw_classes",
    "has_native_layers",
    "head",
    "imagined_step",
    "layer",
    "linear",
    "norm_silu",
    "norm_silu_backward",
    "row_functions",
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


MOST_INPUTS = 512
"""Inputs of a layer up to which native products gain: panels of more leave the first cache."""


def has_native_layers(x: Tensor, weight: Tensor) -> bool:
    """Return whether native code computes a layer [n, k], as it does where torch has one thread."""
    return (
        not torch.compiler.is_compiling()
        and _module(x, weight) is _native
        and weight.shape[1] <= MOST_INPUTS
        and torch.get_num_threads() == 1
        and not torch.is_autocast_enabled("cpu")
    )


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer, x Wᵀ + b; with gradients.

    Args:
        x: [..., k].
        weight: [n, k].
        bias: [n], or without gradients of its own [..., n].
    """
    if not has_native_layers(x, weight):
        return torch_linear(x, weight, bias) if bias.dim() == 1 else x @ weight.t() + bias
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        return _Linear.apply(x, weight, bias)  # type: ignore[no-any-return, no-untyped-call]
    y: Tensor = _native.linear(x, weight, bias)
    return y


def layer(x: Tensor, weight: Tensor, bias: Tensor, scale: Tensor) -> Tensor:
    """`norm_silu` of `linear`; with gradients.

    Args:
        x: [..., k].
        weight: [n, k].
        bias: [n].
        scale: [n].
    """
    if not has_native_layers(x, weight):
        return norm_silu(torch_linear(x, weight, bias), scale)
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        return _Layer.apply(x, weight, bias, scale)  # type: ignore[no-any-return, no-untyped-call]
    y: Tensor = _native.layer(x, weight, bias, scale)[1]
    return y


def head(weights: tuple[Tensor, ...], x: Tensor) -> Tensor:
    """Some `layer`s and a `linear`, without gradients; only where there are native layers.

    Args:
        weights: Weight, bias and scale of each layer, and weight and bias of the last one.
        x: [..., k].
    """
    y: Tensor = _native.head(weights, x)
    return y


def imagined_step(
    weights: tuple[Any, ...], state: tuple[Tensor, Tensor], action: Tensor, noise: Tensor, **of: Any
) -> tuple[Tensor, Tensor]:
    """A step of imagination, without gradients; only where there are native layers.

    Args:
        weights: Of the layers of the deterministic state, of the latents and of the action, as
            those of `head` have them; of what they are mixed by, [2 h, D], [h, D] and [D]; of the
            blocks, [K, D / K, D / K]; the scale [D]; of the gates, [K, D / K, 3 D / K] and
            [K, 3 D / K]; and those of the head of the prior.
        state: [B, D] deterministic, and [B, L * C] drawn.
        action: [B, n].
        noise: [B, L, C] of the draws.
        of: `blocks` K and `share` of the uniform distribution.

    Returns:
        The state after it.
    """
    found: tuple[Tensor, Tensor] = _native.imagined_step(
        weights, *state, action, noise, of["blocks"], of["share"]
    )
    return found


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        y: Tensor = _native.linear(x, weight, bias)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        return _native.linear_backward(x, weight, grad, ctx.needs_input_grad[0])


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, scale: Tensor) -> Tensor:
        z, y = _native.layer(x, weight, bias, scale)
        ctx.save_for_backward(x, weight, scale, z)
        return y  # type: ignore[no-any-return]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, scale, z = ctx.saved_tensors
        return _native.layer_backward(x, weight, scale, z, grad, ctx.needs_input_grad[0])


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


def row_functions(like: Tensor, *others: Tensor) -> Any:
    """The functions of `plain`, chosen once for many calls; without gradients of their own.

    All that they are given must be contiguous, and of the kind of these tensors.
    """
    return _module(like, *others)


def norm_silu_backward(x: Tensor, scale: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of `norm_silu` by x and by the scale, from that of its result; all contiguous."""
    found: tuple[Tensor, Tensor] = _module(x, scale, grad).norm_silu_backward(x, scale, grad)
    return found


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


def draw_classes(logits: Tensor, noise: Tensor, share: float) -> Tensor:
    """One-hot draws, the largest of log((1 − share) softmax(logits) + share / C) + noise.

    Args:
        logits: [..., C], contiguous.
        noise: [..., C] of Gumbel's distribution, contiguous.
        share: Share of the uniform distribution.
    """
    drawn: Tensor = _module(logits, noise).draw_classes(logits, noise, share)
    return drawn


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
