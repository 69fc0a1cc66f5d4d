"""Operations on images of world models that keep little for their gradients.

Large images make most of the memory of an update. These keep the smaller of what is equal, and
compute again what is cheap; values and gradients are those of the operations that they stand for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import interpolate, max_pool2d, silu

from sharpwave.nn.world_layers import RMSNorm
from sharpwave.primitives.world.plain import EPS

__all__ = ["norm_silu", "pooled", "upsampled"]


def pooled(x: Tensor) -> Tensor:
    """The largest of every 2 x 2 of [N, C, H, W], of which only the place is kept."""
    if not x.requires_grad or torch.compiler.is_compiling():
        return max_pool2d(x, 2)
    y: Tensor = _Pool.apply(x)  # type: ignore[no-untyped-call]
    return y


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y, index = max_pool2d(x, 2, return_indices=True)
        column, row = index % 2, index.div_(x.shape[-1], rounding_mode="floor").remainder_(2)
        ctx.save_for_backward(row.mul_(2).add_(column).to(torch.uint8))
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (place,) = ctx.saved_tensors
        *outer, height, width = grad.shape
        found = grad.new_empty((*outer, height, 2, width, 2))
        for k in range(4):
            found[..., k // 2, :, k % 2] = grad * (place == k)
        return found.view(*outer, 2 * height, 2 * width)


def norm_silu(norm: nn.Module, x: Tensor) -> Tensor:
    """SiLU of normalized channels of [N, C, H, W]; only x is kept for its gradients."""
    is_plain = type(norm) is not RMSNorm or torch.compiler.is_compiling()
    if is_plain or not torch.is_grad_enabled():
        return silu(norm(x))
    y: Tensor = _NormSiLU.apply(x, norm.scale, norm)  # type: ignore[no-untyped-call]
    return y


class _NormSiLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, norm: RMSNorm) -> Tensor:
        ctx.save_for_backward(x, scale)
        return silu(norm(x))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, scale = ctx.saved_tensors
        y = x if x.dtype == torch.float64 else x.float()
        root = torch.rsqrt(y.square().mean(1, keepdim=True) + EPS)
        y, scale = y * root, scale[:, None, None]
        z = y * scale
        gate = z.sigmoid()
        grad = grad * (gate * (1.0 + z * (1.0 - gate)))
        of_scale = (grad * y).sum((0, 2, 3))
        grad = grad * scale
        of_x = root * (grad - y * (grad * y).mean(1, keepdim=True))
        return of_x.to(x.dtype), of_scale, None


def upsampled(conv: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A convolution of [N, C, H, W] at twice the size; the larger image is made again."""
    large = _larger(x)
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return conv(large)
    shape, small = large.shape, x.detach()

    def pack(saved: Tensor) -> Tensor | torch.dtype:
        return saved.dtype if saved.shape == shape else saved

    def unpack(kept: Tensor | torch.dtype) -> Tensor:
        return kept if isinstance(kept, Tensor) else _larger(small).to(kept)

    with saved_tensors_hooks(pack, unpack):
        return conv(large)


def _larger(x: Tensor) -> Tensor:
    return interpolate(x, scale_factor=2, mode="nearest")
