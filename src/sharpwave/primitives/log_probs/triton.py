"""Log-probabilities of selected tokens and entropies in Triton: logits are read once."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from sharpwave.primitives.launching import launch

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
LOWEST = tl.constexpr(-1e30)  # finite, so that logits of -inf leave no NaN
DEPTH = 8
WARPS = 4


@triton.jit
def add_logits(top, total, moment, x, slope, ENTROPY: tl.constexpr):
    """Lanes that saw DEPTH more logits: their maximum, Σ 2^d and Σ 2^d d, d = slope (x - top)."""
    higher = tl.maximum(top, tl.max(x, 0))
    distance = (x - higher[None, :]) * slope
    weight = tl.exp2(distance)
    drop = (top - higher) * slope
    shrink = tl.exp2(drop)
    if ENTROPY:
        fresh = tl.sum(weight * tl.maximum(distance, LOWEST), 0)  # 0 * -inf would be NaN
        moment = shrink * (moment + drop * total) + fresh
    total = total * shrink + tl.sum(weight, 0)
    return higher, total, moment


@triton.jit
def entropy_share(log_sum, entropy, joint):
    """Part of the entropy from a part of the vocabulary: w (H - log w), w = its share."""
    distance = log_sum - joint
    return tl.where(log_sum == float("-inf"), 0.0, tl.exp(distance) * (entropy - distance))


@triton.jit
def forward_kernel(
    logits, tokens, log_sums, picked, entropies, n_tokens, n_vocab, start, stride, scale,
    ENTROPY: tl.constexpr, MERGE: tl.constexpr, FINAL: tl.constexpr,
    DEPTH: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """One row: log Σ exp(x / temperature) and the entropy in one pass, and the selected logit.

    Every lane keeps a maximum and sums of its own over DEPTH logits at a time, so that lanes meet
    once at the end. MERGE adds to what earlier columns of the vocabulary left; `start` is the first
    column of these. FINAL subtracts.
    """
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    place = tl.arange(0, DEPTH)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    slope = scale * LOG2_E
    top = tl.full([LANES], LOWEST, tl.float32)
    total = tl.zeros([LANES], tl.float32)
    moment = tl.zeros([LANES], tl.float32)
    whole = n_vocab // (DEPTH * LANES) * (DEPTH * LANES)
    for first in range(0, whole, DEPTH * LANES):
        x = tl.load(logits + first + place).to(tl.float32)
        top, total, moment = add_logits(top, total, moment, x, slope, ENTROPY)
    rest = tl.load(logits + whole + place, mask=whole + place < n_vocab, other=float("-inf"))
    top, total, moment = add_logits(top, total, moment, rest.to(tl.float32), slope, ENTROPY)
    highest = tl.max(top, 0)
    drop = (top - highest) * slope
    shrink = tl.exp2(drop)
    all_total = tl.sum(total * shrink, 0)
    log_sum = highest * scale + tl.log2(all_total) * LN_2

    token = tl.load(tokens + row)
    known = (token >= 0) & (token < n_tokens)
    column = token - start
    here = (column >= 0) & (column < n_vocab)
    own = tl.load(logits + column, mask=here, other=0).to(tl.float32) * scale
    joint = log_sum
    if MERGE:
        earlier = tl.load(log_sums + row)
        peak = tl.maximum(tl.maximum(earlier, log_sum), LOWEST)
        joint = peak + tl.log(tl.exp(earlier - peak) + tl.exp(log_sum - peak))
        own = tl.where(here, own, tl.load(picked + row))
    if ENTROPY:
        all_moment = tl.sum(shrink * (moment + drop * total), 0)
        spread = (tl.log2(all_total) - all_moment / all_total) * LN_2
        entropy = tl.where(all_total == 0.0, 0.0, spread)
        if MERGE:
            entropy = entropy_share(log_sum, entropy, joint)
            entropy += entropy_share(earlier, tl.load(entropies + row), joint)
        if FINAL:
            entropy = tl.where(known, entropy, 0.0)
        tl.store(entropies + row, entropy)
    tl.store(log_sums + row, joint)
    if FINAL:
        own = tl.where(known, own - joint, 0.0)
    tl.store(picked + row, own)


@triton.jit
def backward_kernel(
    logits, tokens, log_sums, entropies, gradients, entropy_gradients, out,
    n_tokens, n_vocab, start, stride, out_stride, scale,
    ENTROPY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """∂/∂x_j of log p_token = (1[j = token] - p_j) / temperature, times the incoming gradient.

    ENTROPY adds that of the entropy H, -p_j (log p_j + H) / temperature, times its own.
    """
    parts = tl.cdiv(n_vocab, BLOCK)
    row = (tl.program_id(0) // parts).to(tl.int64)
    column = (tl.program_id(0) % parts) * BLOCK + tl.arange(0, BLOCK)
    token = tl.load(tokens + row)
    known = (token >= 0) & (token < n_tokens)
    gradient = tl.where(known, tl.load(gradients + row).to(tl.float32) * scale, 0.0)
    log_sum = tl.load(log_sums + row) * LOG2_E
    inside = column < n_vocab
    x = tl.load(logits + row * stride + column, mask=inside, other=0).to(tl.float32)
    log_probability = x * (scale * LOG2_E) - log_sum
    probability = tl.exp2(log_probability)
    selected = tl.where(column + start == token, 1.0, 0.0)
    result = tl.where(gradient == 0.0, 0.0, gradient * (selected - probability))
    if ENTROPY:
        slope = tl.where(known, tl.load(entropy_gradients + row).to(tl.float32) * scale, 0.0)
        excess = tl.maximum(log_probability, LOWEST) * LN_2 + tl.load(entropies + row)
        result -= tl.where(slope == 0.0, 0.0, slope * (probability * excess))
    tl.store(out + row * out_stride + column, result.to(out.dtype.element_ty), mask=inside)


def forward(
    logits: Tensor,
    tokens: Tensor,
    log_sums: Tensor,
    picked: Tensor,
    entropies: Tensor | None,
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
        log_sums if entropies is None else entropies,
        n_tokens,
        n_vocab,
        start,
        logits.stride(0),
        1.0 / temperature,
        ENTROPY=entropies is not None,
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
    entropies: Tensor | None,
    gradients: Tensor,
    entropy_gradients: Tensor | None,
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
        log_sums if entropies is None else entropies,
        gradients,
        gradients if entropy_gradients is None else entropy_gradients,
        out,
        n_tokens,
        n_vocab,
        start,
        logits.stride(0),
        out.stride(0),
        1.0 / temperature,
        ENTROPY=entropies is not None,
        BLOCK=block,
        num_warps=warps,
    )
