"""Steps of Adam and clipping by torch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Block(NamedTuple):
    """The memory of a step of Adam: [n] float32, and two numbers on their device."""

    data: Tensor
    grad: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor
    steps: Tensor
    lr: Tensor


def clip(grad: Tensor, max_norm: float) -> Tensor:
    """Scale a gradient down to a norm, without waiting for a device; returns the norm before."""
    norm: Tensor = torch.linalg.vector_norm(grad)
    if not norm.is_cpu:
        grad.mul_((max_norm / (norm + 1e-6)).clamp_(max=1.0))
    elif not (size := norm.item() + 1e-6) <= max_norm:
        grad.mul_(max_norm / size)
    return norm


def step(block: Block, betas: tuple[float, float], eps: float, skip: Tensor | None) -> None:
    """One step of Adam."""
    block.steps.add_(1.0)
    torch._fused_adam_(
        [block.data],
        [block.grad],
        [block.exp_avg],
        [block.exp_avg_sq],
        [],
        [block.steps],
        lr=block.lr,
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=0.0,
        eps=eps,
        amsgrad=False,
        maximize=False,
        grad_scale=None,
        found_inf=skip,
    )
    if skip is not None:
        block.steps.sub_(skip)


def clip_and_step(
    block: Block, max_norm: float, betas: tuple[float, float], eps: float, skip: Tensor | None
) -> Tensor:
    """`clip`, then `step`."""
    norm = clip(block.grad, max_norm)
    step(block, betas, eps, skip)
    return norm
