"""Steps of Adam and clipping in Triton: a gradient is read once for its norm, and once to be used.

The norm is that of a fixed number of parts, added up in a fixed order by every program that needs
it: the same number everywhere and every time.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from sharpwave.primitives.adam.plain import Block
from sharpwave.primitives.launching import launch

BLOCK = 1024
MOST_PARTS = 512


@triton.jit
def count(steps, skip, SKIPS: tl.constexpr):
    """Count a step that is not skipped."""
    taken = 1.0
    if SKIPS:
        taken -= tl.load(skip)
    tl.store(steps, tl.load(steps) + taken)


@triton.jit
def squares_kernel(
    grad, parts, steps, skip, size, span,
    COUNTS: tl.constexpr, SKIPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The sum of squares of a part of a gradient; the first program counts the step."""
    part = tl.program_id(0).to(tl.int64)
    end = tl.minimum((part + 1) * span, size)
    total = tl.zeros([BLOCK], tl.float32)
    for begin in range(part * span, end, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        g = tl.load(grad + at, mask=at < end, other=0)
        total += g * g
    tl.store(parts + part, tl.sum(total, 0))
    if COUNTS and part == 0:
        count(steps, skip, SKIPS)


@triton.jit
def count_kernel(steps, skip, SKIPS: tl.constexpr):
    """`count` alone."""
    count(steps, skip, SKIPS)


@triton.jit
def norm_of(parts, n_parts, PARTS: tl.constexpr):
    """The root of the sum of all parts."""
    part = tl.arange(0, PARTS)
    return tl.sqrt(tl.sum(tl.load(parts + part, mask=part < n_parts, other=0), 0))


@triton.jit
def scale_of(norm, max_norm):
    """The factor that a gradient of this norm is clipped by, NaN for NaN."""
    ratio = max_norm / (norm + 1e-6)
    return tl.where(ratio > 1, 1.0, ratio)


@triton.jit
def clip_kernel(
    grad, parts, norm, size, n_parts, max_norm, PARTS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Scale a block of a gradient by what its norm says, and write the norm."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    whole = norm_of(parts, n_parts, PARTS)
    g = tl.load(grad + at, mask=at < size, other=0)
    tl.store(grad + at, g * scale_of(whole, max_norm), mask=at < size)
    if tl.program_id(0) == 0:
        tl.store(norm, whole)


@triton.jit
def adam_kernel(
    data, grad, exp_avg, exp_avg_sq, steps, lr, skip, parts, norm, size, n_parts, max_norm, eps,
    BETA1: tl.constexpr, BETA2: tl.constexpr, LOG1: tl.constexpr, LOG2: tl.constexpr,
    CLIPS: tl.constexpr, SKIPS: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One step of a block of parameters; `steps` counts it already."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    g = tl.load(grad + at, mask=inside, other=0)
    if CLIPS:
        whole = norm_of(parts, n_parts, PARTS)
        g = g * scale_of(whole, max_norm)
        tl.store(grad + at, g, mask=inside)
        if tl.program_id(0) == 0:
            tl.store(norm, whole)
    if SKIPS:
        inside = at < tl.where(tl.load(skip) == 0, size, 0)
    # 1 - β^t in float64: float32 would lose most digits of it at the first steps.
    t = tl.load(steps).to(tl.float64)
    correction1 = (1 - tl.exp(t * LOG1)).to(tl.float32)
    correction2 = tl.sqrt((1 - tl.exp(t * LOG2)).to(tl.float32))
    m = BETA1 * tl.load(exp_avg + at, mask=inside, other=0) + (1 - BETA1) * g
    v = BETA2 * tl.load(exp_avg_sq + at, mask=inside, other=0) + (1 - BETA2) * g * g
    tl.store(exp_avg + at, m, mask=inside)
    tl.store(exp_avg_sq + at, v, mask=inside)
    rate = tl.load(lr) / correction1
    x = tl.load(data + at, mask=inside, other=0)
    tl.store(data + at, x - rate * m / (tl.sqrt(v) / correction2 + eps), mask=inside)


def clip(grad: Tensor, max_norm: float) -> Tensor:
    """Launch `squares_kernel` and `clip_kernel`."""
    parts, norm = _squares(grad, grad, grad, counts=False, skips=False)
    launch(
        clip_kernel,
        (triton.cdiv(grad.numel(), BLOCK),),
        grad,
        grad,
        parts,
        norm,
        grad.numel(),
        len(parts),
        float(max_norm),
        PARTS=triton.next_power_of_2(len(parts)),
        BLOCK=BLOCK,
    )
    return norm


def step(block: Block, betas: tuple[float, float], eps: float, skip: Tensor | None) -> None:
    """Launch `count_kernel` and `adam_kernel`."""
    skips = block.steps if skip is None else skip
    launch(count_kernel, (1,), block.data, block.steps, skips, SKIPS=skip is not None)
    _adam(block, betas, eps, skip, block.grad, block.grad, math.inf, clips=False)


def clip_and_step(
    block: Block, max_norm: float, betas: tuple[float, float], eps: float, skip: Tensor | None
) -> Tensor:
    """Launch `squares_kernel` and `adam_kernel`."""
    skips = block.steps if skip is None else skip
    parts, norm = _squares(block.grad, block.steps, skips, counts=True, skips=skip is not None)
    _adam(block, betas, eps, skip, parts, norm, max_norm, clips=True)
    return norm


def _squares(
    grad: Tensor, steps: Tensor, skip: Tensor, *, counts: bool, skips: bool
) -> tuple[Tensor, Tensor]:
    """The sums of squares of parts, and memory for the norm."""
    size = grad.numel()
    span = triton.cdiv(triton.cdiv(size, MOST_PARTS), BLOCK) * BLOCK
    parts = torch.empty(triton.cdiv(size, span), device=grad.device)
    launch(
        squares_kernel,
        (len(parts),),
        grad,
        grad,
        parts,
        steps,
        skip,
        size,
        span,
        COUNTS=counts,
        SKIPS=skips,
        BLOCK=BLOCK,
    )
    return parts, torch.empty((), device=grad.device)


def _adam(
    block: Block,
    betas: tuple[float, float],
    eps: float,
    skip: Tensor | None,
    parts: Tensor,
    norm: Tensor,
    max_norm: float,
    *,
    clips: bool,
) -> None:
    size, n_parts = block.data.numel(), len(parts) if clips else 1
    launch(
        adam_kernel,
        (triton.cdiv(size, BLOCK),),
        block.data,
        block.data,
        block.grad,
        block.exp_avg,
        block.exp_avg_sq,
        block.steps,
        block.lr,
        block.steps if skip is None else skip,
        parts,
        norm,
        size,
        n_parts,
        float(max_norm),
        float(eps),
        BETA1=betas[0],
        BETA2=betas[1],
        LOG1=math.log(betas[0]) if betas[0] else -math.inf,
        LOG2=math.log(betas[1]) if betas[1] else -math.inf,
        CLIPS=clips,
        SKIPS=skip is not None,
        PARTS=triton.next_power_of_2(n_parts),
        BLOCK=BLOCK,
    )
