"""Row-wise functions of a world model's step, in Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sharpwave.primitives.launching import launch
from sharpwave.primitives.world.plain import EPS

BLOCK = 1024
PARTS = 256
"""Programs that share out the rows of a gradient which is summed over them."""


@triton.jit
def _tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def norm_silu_kernel(x, scale, out, size, eps, BLOCK: tl.constexpr):
    """SiLU of one normalized row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < size
    values = tl.load(x + row * size + column, mask=inside, other=0).to(tl.float32)
    root = tl.rsqrt(tl.sum(values * values, 0) / size + eps)
    y = values * root * tl.load(scale + column, mask=inside, other=0).to(tl.float32)
    result = y * tl.sigmoid(y)
    tl.store(out + row * size + column, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def norm_silu_backward_kernel(
    x, scale, gradient, out, parts, n_rows, size, span, eps,
    SCALE: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Gradients of some rows, and their part of that of the scale."""
    part = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < size
    factor = tl.load(scale + column, mask=inside, other=0).to(tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for row in range(part * span, tl.minimum((part + 1) * span, n_rows)):
        at = row * size + column
        values = tl.load(x + at, mask=inside, other=0).to(tl.float32)
        g = tl.load(gradient + at, mask=inside, other=0).to(tl.float32)
        root = tl.rsqrt(tl.sum(values * values, 0) / size + eps)
        y = values * root
        z = y * factor
        gate = tl.sigmoid(z)
        g = g * (gate + z * gate * (1 - gate))
        total += g * y
        of_y = g * factor
        result = root * (of_y - y * (tl.sum(of_y * y, 0) / size))
        tl.store(out + at, result.to(out.dtype.element_ty), mask=inside)
    if SCALE:
        tl.store(parts + part * size + column, total, mask=inside)


@triton.jit
def remember_kernel(gates, before, out, rows, blocks, size, total, BLOCK: tl.constexpr):
    """Output of the recurrent unit, number by number of [rows, blocks, size]."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < total
    i, block, row = at % size, (at // size) % blocks, at // (size * blocks)
    gate = gates + (block * rows + row) * 3 * size + i
    reset = tl.sigmoid(tl.load(gate, mask=inside, other=0).to(tl.float32))
    candidate = _tanh(reset * tl.load(gate + size, mask=inside, other=0).to(tl.float32))
    update = tl.sigmoid(tl.load(gate + 2 * size, mask=inside, other=0).to(tl.float32) - 1)
    old = tl.load(before + at, mask=inside, other=0).to(tl.float32)
    result = update * candidate + (1 - update) * old
    tl.store(out + at, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def remember_backward_kernel(
    gates, before, gradient, of_gates, of_before, rows, blocks, size, total, BLOCK: tl.constexpr
):  # fmt: skip
    """Gradients of `remember_kernel`."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < total
    i, block, row = at % size, (at // size) % blocks, at // (size * blocks)
    where = (block * rows + row) * 3 * size + i
    reset = tl.sigmoid(tl.load(gates + where, mask=inside, other=0).to(tl.float32))
    c = tl.load(gates + where + size, mask=inside, other=0).to(tl.float32)
    candidate = _tanh(reset * c)
    update = tl.load(gates + where + 2 * size, mask=inside, other=0).to(tl.float32)
    update = tl.sigmoid(update - 1)
    old = tl.load(before + at, mask=inside, other=0).to(tl.float32)
    g = tl.load(gradient + at, mask=inside, other=0).to(tl.float32)
    of_new = g * update * (1 - candidate * candidate)
    dtype = of_gates.dtype.element_ty
    tl.store(of_gates + where, (of_new * c * reset * (1 - reset)).to(dtype), mask=inside)
    tl.store(of_gates + where + size, (of_new * reset).to(dtype), mask=inside)
    of_update = g * (candidate - old) * update * (1 - update)
    tl.store(of_gates + where + 2 * size, of_update.to(dtype), mask=inside)
    tl.store(of_before + at, (g * (1 - update)).to(of_before.dtype.element_ty), mask=inside)


@triton.jit
def _softmax(logits, at, inside, is_class):
    """Probabilities of rows; of those beyond the last one, which are not stored, some number."""
    values = tl.load(logits + at, mask=inside, other=-1e30).to(tl.float32)
    e = tl.where(is_class, tl.exp(values - tl.max(values, 1)[:, None]), 0)
    return e / tl.sum(e, 1)[:, None]


@triton.jit
def draw_kernel(
    logits, noise, out, n_rows, size, share, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """One-hot draws of some rows of classes."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < n_rows) & (column < size)
    at = row * size + column
    probs = _softmax(logits, at, inside, column < size) * (1 - share) + share / size
    score = tl.log(probs) + tl.load(noise + at, mask=inside, other=0).to(tl.float32)
    score = tl.where(column < size, score, float("-inf"))
    best = tl.argmax(score, 1)[:, None]
    tl.store(out + at, (column == best).to(out.dtype.element_ty), mask=inside)


@triton.jit
def draw_backward_kernel(
    logits, gradient, out, n_rows, size, share, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Gradients of the probabilities of some rows."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < n_rows) & (column < size)
    at = row * size + column
    probs = _softmax(logits, at, inside, column < size)
    g = tl.load(gradient + at, mask=inside, other=0).to(tl.float32)
    result = (1 - share) * probs * (g - tl.sum(probs * g, 1)[:, None])
    tl.store(out + at, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def two_hot_mean_kernel(logits, bins, out, size, BLOCK: tl.constexpr):
    """The mean of one row, bins of one size subtracted from each other first."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < size
    values = tl.load(logits + row * size + column, mask=inside, other=float("-inf"))
    values = values.to(tl.float32)
    most = tl.max(values, 0)
    upper = inside & (column > size // 2)
    mirrored = tl.load(logits + row * size + size - 1 - column, mask=upper, other=0)
    e = tl.exp(values - most)
    apart = tl.where(upper, e - tl.exp(mirrored.to(tl.float32) - most), 0)
    mean = tl.sum(apart * tl.load(bins + column, mask=inside, other=0), 0)
    tl.store(out + row, mean / tl.sum(e, 0))


@triton.jit
def _around(bin_values, column, inside, target, size):
    """The bin above a target and its share, from all bins."""
    low = tl.min(tl.where(inside, bin_values, float("inf")), 0)
    high = tl.max(tl.where(inside, bin_values, float("-inf")), 0)
    x = tl.minimum(tl.maximum(target, low), high)
    above = tl.sum((inside & (bin_values <= x)).to(tl.int32), 0)
    above = tl.minimum(tl.maximum(above, 1), size - 1)
    under = tl.sum(tl.where(column == above - 1, bin_values, 0), 0)
    over = tl.sum(tl.where(column == above, bin_values, 0), 0)
    return above, (x - under) / (over - under)


@triton.jit
def two_hot_loss_kernel(
    logits, bins, targets, weights, out, n_rows, size, K: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """The cross-entropies of one row with its targets, added up."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < size
    bin_values = tl.load(bins + column, mask=inside, other=0)
    values = tl.load(logits + row * size + column, mask=inside, other=float("-inf"))
    values = values.to(tl.float32)
    most = tl.max(values, 0)
    normalizer = most + tl.log(tl.sum(tl.exp(values - most), 0))
    loss = 0.0
    for k in tl.static_range(K):
        above, share = _around(
            bin_values, column, inside, tl.load(targets + k * n_rows + row), size
        )
        hot = tl.where(column == above, share, tl.where(column == above - 1, 1 - share, 0.0))
        mean = tl.sum(tl.where(hot > 0, hot * values, 0.0), 0)
        loss += tl.load(weights + k) * (normalizer - mean)
    tl.store(out + row, loss)


@triton.jit
def two_hot_loss_backward_kernel(
    logits, bins, targets, weights, gradient, out, n_rows, size,
    K: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """The gradient of `two_hot_loss_kernel` by the logits of one row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < size
    bin_values = tl.load(bins + column, mask=inside, other=0)
    values = tl.load(logits + row * size + column, mask=inside, other=float("-inf"))
    e = tl.exp(values.to(tl.float32) - tl.max(values.to(tl.float32), 0))
    probs = e / tl.sum(e, 0)
    result = tl.zeros([BLOCK], tl.float32)
    for k in tl.static_range(K):
        above, share = _around(
            bin_values, column, inside, tl.load(targets + k * n_rows + row), size
        )
        hot = tl.where(column == above, share, tl.where(column == above - 1, 1 - share, 0.0))
        result += tl.load(weights + k) * (probs - hot)
    result = result * tl.load(gradient + row)
    tl.store(out + row * size + column, result.to(out.dtype.element_ty), mask=inside)


def _block(size: int) -> dict[str, int]:
    block = triton.next_power_of_2(size)
    return {"BLOCK": block, "num_warps": 4 if block <= 2048 else 8}


def norm_silu(x: Tensor, scale: Tensor) -> Tensor:
    """SiLU of RMS-normalized rows."""
    out, size = torch.empty_like(x), x.shape[-1]
    launch(norm_silu_kernel, (x.numel() // size,), x, x, scale, out, size, EPS, **_block(size))
    return out


def norm_silu_backward(x: Tensor, scale: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of `norm_silu` by x and by the scale."""
    out, size = torch.empty_like(x), x.shape[-1]
    rows = x.numel() // size
    span = -(-rows // PARTS)
    parts = torch.empty(-(-rows // span), size, device=x.device)
    memory, sizes = (x, scale, grad, out, parts), (rows, size, span, EPS)
    options = {"SCALE": True, **_block(size)}
    launch(norm_silu_backward_kernel, (len(parts),), x, *memory, *sizes, **options)
    return out, parts.sum(0)


def norm_silu_rows(x: Tensor, scale: Tensor, grad: Tensor) -> Tensor:
    """The gradient of `norm_silu` by x alone."""
    out, size = torch.empty_like(x), x.shape[-1]
    rows = x.numel() // size
    memory, sizes = (x, scale, grad, out, out), (rows, size, 1, EPS)
    options = {"SCALE": False, **_block(size)}
    launch(norm_silu_backward_kernel, (rows,), x, *memory, *sizes, **options)
    return out


def remember(gates: Tensor, before: Tensor) -> Tensor:
    """Output [B, K n] of the recurrent unit, from gates [K, B, 3 n] and its state before."""
    out, (blocks, rows, wide) = torch.empty_like(before), gates.shape
    total = before.numel()
    sizes = rows, blocks, wide // 3, total
    launch(remember_kernel, (-(-total // BLOCK),), gates, gates, before, out, *sizes, BLOCK=BLOCK)
    return out


def remember_backward(gates: Tensor, before: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of `remember` by gates and by what was."""
    of_gates, of_before = torch.empty_like(gates), torch.empty_like(before)
    blocks, rows, wide = gates.shape
    total = before.numel()
    memory, sizes = (gates, before, grad, of_gates, of_before), (rows, blocks, wide // 3, total)
    grid = (-(-total // BLOCK),)
    launch(remember_backward_kernel, grid, gates, *memory, *sizes, BLOCK=BLOCK)
    return of_gates, of_before


def draw_classes(logits: Tensor, noise: Tensor, share: float) -> Tensor:
    """One-hot draws from logits."""
    return _of_classes(draw_kernel, logits, noise, share)


def draw_classes_backward(logits: Tensor, grad: Tensor, share: float) -> Tensor:
    """The gradient of the probabilities, in the place of that of the draws."""
    return _of_classes(draw_backward_kernel, logits, grad, share)


def _of_classes(kernel: object, logits: Tensor, other: Tensor, share: float) -> Tensor:
    out, size = torch.empty_like(logits), logits.shape[-1]
    rows, block = logits.numel() // size, triton.next_power_of_2(size)
    together = max(1, 512 // block)
    grid, sizes = (-(-rows // together),), (rows, size, share)
    launch(kernel, grid, logits, logits, other, out, *sizes, ROWS=together, BLOCK=block)
    return out


def two_hot_mean(logits: Tensor, bins: Tensor) -> Tensor:
    """The mean over symmetric bins."""
    out, size = torch.empty(logits.shape[:-1], device=logits.device), len(bins)
    launch(two_hot_mean_kernel, (out.numel(),), logits, logits, bins, out, size, **_block(size))
    return out


def two_hot_loss(logits: Tensor, bins: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Cross-entropies with targets, added up."""
    out, size = torch.empty(logits.shape[:-1], device=logits.device), len(bins)
    memory, rows = (logits, bins, targets, weights, out), out.numel()
    options = {"K": len(weights), **_block(size)}
    launch(two_hot_loss_kernel, (rows,), logits, *memory, rows, size, **options)
    return out


def two_hot_loss_backward(
    logits: Tensor, bins: Tensor, targets: Tensor, weights: Tensor, grad: Tensor
) -> Tensor:
    """The gradient of `two_hot_loss` by the logits."""
    out, size, rows = torch.empty_like(logits), len(bins), grad.numel()
    memory = logits, bins, targets, weights, grad, out
    options = {"K": len(weights), **_block(size)}
    launch(two_hot_loss_backward_kernel, (rows,), logits, *memory, rows, size, **options)
    return out
