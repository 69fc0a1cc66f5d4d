"""Log-probabilities of selected tokens in Triton: logits are read once and never copied."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from sharpwave.kernels.jit.launching import launch

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
LOWEST = tl.constexpr(-1e30)  # finite, so that logits of -inf leave no NaN
DEPTH = 8
WARPS = 4


@triton.jit
def forward_kernel(
    logits, tokens, log_sums, picked, n_tokens, n_vocab, start, stride, scale,
    MERGE: tl.constexpr, FINAL: tl.constexpr, DEPTH: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """One row: log Σ exp(x / temperature) in one pass, and the selected logit.

    Every lane keeps a maximum and a sum of its own over DEPTH logits at a time, so that lanes meet
    once at the end. MERGE adds to what earlier columns of the vocabulary left; `start` is the first
    column of these. FINAL subtracts.
    """
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    place = tl.arange(0, DEPTH)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    slope = scale * LOG2_E
    top = tl.full([LANES], LOWEST, tl.float32)
    total = tl.zeros([LANES], tl.float32)
    whole = n_vocab // (DEPTH * LANES) * (DEPTH * LANES)
    for first in range(0, whole, DEPTH * LANES):
        x = tl.load(logits + first + place).to(tl.float32) * slope
        higher = tl.maximum(top, tl.max(x, 0))
        total = total * tl.exp2(top - higher) + tl.sum(tl.exp2(x - higher[None, :]), 0)
        top = higher
    rest = tl.load(logits + whole + place, mask=whole + place < n_vocab, other=float("-inf"))
    x = rest.to(tl.float32) * slope
    higher = tl.maximum(top, tl.max(x, 0))
    total = total * tl.exp2(top - higher) + tl.sum(tl.exp2(x - higher[None, :]), 0)
    highest = tl.max(higher, 0)
    log_sum = (highest + tl.log2(tl.sum(total * tl.exp2(higher - highest), 0))) * LN_2

    token = tl.load(tokens + row)
    column = token - start
    here = (column >= 0) & (column < n_vocab)
    own = tl.load(logits + column, mask=here, other=0).to(tl.float32) * scale
    if MERGE:
        earlier = tl.load(log_sums + row)
        peak = tl.maximum(earlier, log_sum)
        log_sum = peak + tl.log(tl.exp(earlier - peak) + tl.exp(log_sum - peak))
        own = tl.where(here, own, tl.load(picked + row))
    tl.store(log_sums + row, log_sum)
    if FINAL:
        known = (token >= 0) & (token < n_tokens)
        own = tl.where(known, own - log_sum, 0.0)
    tl.store(picked + row, own)


@triton.jit
def backward_kernel(
    logits, tokens, log_sums, gradients, out, n_tokens, n_vocab, start, stride, out_stride, scale,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """∂/∂x_j of log p_token = (1[j = token] - p_j) / temperature, times the incoming gradient."""
    parts = tl.cdiv(n_vocab, BLOCK)
    row = (tl.program_id(0) // parts).to(tl.int64)
    column = (tl.program_id(0) % parts) * BLOCK + tl.arange(0, BLOCK)
    token = tl.load(tokens + row)
    known = (token >= 0) & (token < n_tokens)
    gradient = tl.where(known, tl.load(gradients + row).to(tl.float32) * scale, 0.0)
    log_sum = tl.load(log_sums + row) * LOG2_E
    inside = column < n_vocab
    x = tl.load(logits + row * stride + column, mask=inside, other=0).to(tl.float32)
    probability = tl.exp2(x * (scale * LOG2_E) - log_sum)
    selected = tl.where(column + start == token, 1.0, 0.0)
    result = tl.where(gradient == 0.0, 0.0, gradient * (selected - probability))
    tl.store(out + row * out_stride + column, result.to(out.dtype.element_ty), mask=inside)


def forward(
    logits: Tensor,
    tokens: Tensor,
    log_sums: Tensor,
    picked: Tensor,
    temperature: float,
    *,
    n_tokens: int,
    start: int = 0,
    merge: bool = False,
    final: bool = True,
    depth: int = DEPTH,
    warps: int = WARPS,
) -> None:
    """Launch `forward_kernel` over [R, V], whose columns begin at `start` of `n_tokens`."""
    n_rows, n_vocab = logits.shape
    if n_rows == 0:
        return
    lanes = warps * 32 * (16 // logits.element_size())
    launch(
        forward_kernel,
        (n_rows,),
        logits,
        logits,
        tokens,
        log_sums,
        picked,
        n_tokens,
        n_vocab,
        start,
        logits.stride(0),
        1.0 / temperature,
        MERGE=merge,
        FINAL=final,
        DEPTH=depth,
        LANES=lanes,
        num_warps=warps,
    )


def backward(
    logits: Tensor,
    tokens: Tensor,
    log_sums: Tensor,
    gradients: Tensor,
    out: Tensor,
    temperature: float,
    *,
    n_tokens: int,
    start: int = 0,
    block: int = 4096,
    warps: int = 8,
) -> None:
    """Launch `backward_kernel`; `out` may be `logits`."""
    n_rows, n_vocab = logits.shape
    if n_rows == 0:
        return
    launch(
        backward_kernel,
        (n_rows * -(-n_vocab // block),),
        logits,
        logits,
        tokens,
        log_sums,
        gradients,
        out,
        n_tokens,
        n_vocab,
        start,
        logits.stride(0),
        out.stride(0),
        1.0 / temperature,
        BLOCK=block,
        num_warps=warps,
    )
