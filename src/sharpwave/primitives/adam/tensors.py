"""Steps of Adam on one block of parameters, whose gradient may be clipped by its norm on the way.

torch gives 65536 numbers to each program of its fused step, which leaves a GPU idle with networks
of reinforcement learning, and clipping reads the gradient twice more.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from sharpwave.primitives.adam import plain as plain
from sharpwave.primitives.adam.plain import Block
from sharpwave.primitives.backend import HAS_TRITON, uses_triton

if HAS_TRITON:
    from sharpwave.primitives.adam import triton as jit

__all__ = ["Block", "clip", "clip_and_step", "step"]


def clip(grad: Tensor, max_norm: float) -> Tensor:
    """Scale a gradient down to a norm in place: g ← g · min(1, max_norm / (‖g‖ + 1e-6)).

    Args:
        grad: [n] float32, contiguous.
        max_norm: Maximum norm.

    Returns:
        [] norm before scaling.

    Example:
        >>> import torch
        >>> grad = torch.tensor([3.0, 4.0])
        >>> clip(grad, 1.0).item(), [round(x, 3) for x in grad.tolist()]
        (5.0, [0.6, 0.8])
    """
    norm: Tensor = _module(grad).clip(grad, max_norm)
    return norm


def step(
    block: Block, *, betas: tuple[float, float], eps: float, skip: Tensor | None = None
) -> None:
    """Move parameters along their gradient by Adam, in place.

    Args:
        block: Parameters, gradient and state.
        betas: Decay of the two moments.
        eps: Added to the root.
        skip: [] float32; where it is 1, parameters and state stay. Otherwise it must be 0.
    """
    _module(block.data).step(block, betas, eps, skip)


def clip_and_step(
    block: Block,
    max_norm: float,
    *,
    betas: tuple[float, float],
    eps: float,
    skip: Tensor | None = None,
) -> Tensor:
    """`clip` the gradient, also where the step is skipped, then `step`.

    Returns:
        [] norm of the gradient before it was clipped.
    """
    norm: Tensor = _module(block.data).clip_and_step(block, max_norm, betas, eps, skip)
    return norm


def _module(like: Tensor) -> Any:
    return jit if uses_triton(like) else plain
