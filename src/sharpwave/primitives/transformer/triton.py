"""Parts of a transformer in Triton: the gated layer, rotary positions, attention of one token."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sharpwave.primitives.launching import launch

LOG2_E = tl.constexpr(1.4426950408889634)
BLOCK, KEYS = 1024, 64
PROGRAMS = 512
"""Programs that keep a device busy: fewer slots than that share out their keys."""


@triton.jit
def gated_kernel(gate, up, out, size, BLOCK: tl.constexpr):
    """silu(gate) * up, rounded once."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    x = tl.load(gate + at, mask=inside, other=0).to(tl.float32)
    y = tl.load(up + at, mask=inside, other=0).to(tl.float32)
    tl.store(out + at, (x * tl.sigmoid(x) * y).to(out.dtype.element_ty), mask=inside)


@triton.jit
def gated_backward_kernel(gate, up, gradient, to_gate, to_up, size, BLOCK: tl.constexpr):
    """Gradients of silu(gate) * up by both."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    x = tl.load(gate + at, mask=inside, other=0).to(tl.float32)
    y = tl.load(up + at, mask=inside, other=0).to(tl.float32)
    g = tl.load(gradient + at, mask=inside, other=0).to(tl.float32)
    s = tl.sigmoid(x)
    tl.store(to_up + at, (g * x * s).to(to_up.dtype.element_ty), mask=inside)
    slope = s * (1 + x * (1 - s))
    tl.store(to_gate + at, (g * y * slope).to(to_gate.dtype.element_ty), mask=inside)


@triton.jit
def normed_kernel(x, weight, out, scales, size, eps, BLOCK: tl.constexpr):
    """One row over the root of its mean square, times the weight."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < size
    values = tl.load(x + row * size + column, mask=inside, other=0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, 0) / size + eps)
    factor = tl.load(weight + column, mask=inside, other=0).to(tl.float32)
    result = values * scale * factor
    tl.store(out + row * size + column, result.to(out.dtype.element_ty), mask=inside)
    tl.store(scales + row, scale)


@triton.jit
def normed_backward_kernel(
    gradient, x, weight, scales, add, out, parts, n_rows, size, span, BLOCK: tl.constexpr
):  # fmt: skip
    """Gradients of some rows, and their part of the gradient of the weight."""
    part = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < size
    factor = tl.load(weight + column, mask=inside, other=0).to(tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for row in range(part * span, tl.minimum((part + 1) * span, n_rows)):
        at = row * size + column
        scale = tl.load(scales + row)
        unit = tl.load(x + at, mask=inside, other=0).to(tl.float32) * scale
        coming = tl.load(gradient + at, mask=inside, other=0).to(tl.float32)
        to_unit = coming * factor
        along = tl.sum(to_unit * unit, 0) / size
        beside = tl.load(add + at, mask=inside, other=0).to(tl.float32)
        result = (to_unit - unit * along) * scale + beside
        tl.store(out + at, result.to(out.dtype.element_ty), mask=inside)
        total += coming * unit
    tl.store(parts + part * size + column, total, mask=inside)


@triton.jit
def turn(x, out, token, cos, sin, n_heads, HALF: tl.constexpr, HEADS: tl.constexpr):
    """The heads of a token, turned; both halves have the same angles."""
    half = tl.arange(0, HALF)[None, :]
    head = tl.arange(0, HEADS)[:, None]
    at = (token * n_heads + head) * (2 * HALF) + half
    inside = head < n_heads
    first = tl.load(x + at, mask=inside, other=0).to(tl.float32)
    second = tl.load(x + at + HALF, mask=inside, other=0).to(tl.float32)
    tl.store(out + at, (first * cos - second * sin).to(out.dtype.element_ty), mask=inside)
    tl.store(out + at + HALF, (second * cos + first * sin).to(out.dtype.element_ty), mask=inside)


@triton.jit
def rotate_kernel(
    x, cos, sin, out, n_heads, sign, HALF: tl.constexpr, HEADS: tl.constexpr
):  # fmt: skip
    """The heads of one token, turned by its angles, or back where `sign` is -1."""
    token = tl.program_id(0).to(tl.int64)
    half = tl.arange(0, HALF)[None, :]
    c = tl.load(cos + token * 2 * HALF + half).to(tl.float32)
    s = tl.load(sin + token * 2 * HALF + half).to(tl.float32) * sign
    turn(x, out, token, c, s, n_heads, HALF, HEADS)


@triton.jit
def store_kernel(
    q, k, v, cos, sin, write, turned, keys, values, n_heads, n_shared, capacity,
    HALF: tl.constexpr, HEADS: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    """One slot: its query turned, its key turned and stored, its value stored."""
    slot = tl.program_id(0).to(tl.int64)
    half = tl.arange(0, HALF)[None, :]
    c = tl.load(cos + slot * 2 * HALF + half).to(tl.float32)
    s = tl.load(sin + slot * 2 * HALF + half).to(tl.float32)
    turn(q, turned, slot, c, s, n_heads, HALF, HEADS)
    head = tl.arange(0, SHARED)[:, None]
    inside = head < n_shared
    source = (slot * n_shared + head) * (2 * HALF) + half
    target = ((slot * n_shared + head) * capacity + tl.load(write + slot)) * (2 * HALF) + half
    kind = keys.dtype.element_ty
    first = tl.load(k + source, mask=inside, other=0).to(tl.float32)
    second = tl.load(k + source + HALF, mask=inside, other=0).to(tl.float32)
    tl.store(keys + target, (first * c - second * s).to(kind), mask=inside)
    tl.store(keys + target + HALF, (second * c + first * s).to(kind), mask=inside)
    tl.store(values + target, tl.load(v + source, mask=inside, other=0), mask=inside)
    tl.store(values + target + HALF, tl.load(v + source + HALF, mask=inside, other=0), mask=inside)


@triton.jit
def attend_kernel(
    q, keys, values, lengths, out, sums, slope, n_shared, capacity, n_parts,
    GROUP: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, KEYS: tl.constexpr,
    PRECISION: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """The queries that share a key head in one slot, over a part of its keys.

    WHOLE writes the attention itself, where there is one part; otherwise `join_kernel` joins them
    by the logarithms (base 2) of their sums.
    """
    pair = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    length = tl.load(lengths + pair // n_shared).to(tl.int32)
    span = tl.cdiv(tl.cdiv(length, n_parts), KEYS) * KEYS
    begin = part * span
    end = tl.minimum(begin + span, length)
    row = tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    inside = (row < GROUP)[:, None]
    query = tl.load(q + (pair * GROUP + row[:, None]) * WIDTH + column, mask=inside, other=0)
    keys += pair * capacity * WIDTH
    values += pair * capacity * WIDTH
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    found = tl.zeros([ROWS, WIDTH], tl.float32)
    for first in range(begin, end, KEYS):
        token = first + tl.arange(0, KEYS)
        real = token < end
        key = tl.load(keys + token[None, :] * WIDTH + column[:, None], mask=real[None, :], other=0)
        score = tl.dot(query, key, input_precision=PRECISION) * slope
        score = tl.where(real[None, :], score, float("-inf"))
        higher = tl.maximum(top, tl.max(score, 1))
        weight = tl.exp2(score - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(weight, 1)
        value = tl.load(values + token[:, None] * WIDTH + column, mask=real[:, None], other=0)
        added = tl.dot(weight.to(value.dtype), value, input_precision=PRECISION)
        found = found * shrink[:, None] + added
        top = higher
    found = tl.where(total[:, None] > 0, found / total[:, None], 0.0)
    if WHOLE:
        target = (pair * GROUP + row[:, None]) * WIDTH + column
        tl.store(out + target, found.to(out.dtype.element_ty), mask=inside)
    else:
        place = (pair * GROUP + row) * n_parts + part
        tl.store(out + place[:, None] * WIDTH + column, found, mask=inside)
        tl.store(sums + place, top + tl.log2(total), mask=row < GROUP)


@triton.jit
def join_kernel(parts, sums, out, n_parts, WIDTH: tl.constexpr, PARTS: tl.constexpr):
    """The attention of one query from its parts."""
    query = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, PARTS)
    column = tl.arange(0, WIDTH)
    inside = part < n_parts
    log_sum = tl.load(sums + query * n_parts + part, mask=inside, other=float("-inf"))
    top = tl.maximum(tl.max(log_sum, 0), -1e30)  # finite where there is no key at all
    weight = tl.exp2(log_sum - top)
    at = (query * n_parts + part[:, None]) * WIDTH + column
    each = tl.load(parts + at, mask=inside[:, None], other=0)
    total = tl.sum(weight, 0)
    found = tl.sum(each * weight[:, None], 0) / tl.where(total > 0, total, 1.0)
    tl.store(out + query * WIDTH + column, found.to(out.dtype.element_ty))


@triton.jit
def block_sums_kernel(
    logits, tops, sums, n_vocab, stride, slope, n_blocks, BLOCK: tl.constexpr
):  # fmt: skip
    """Maximum, and sum of 2^(x - maximum), of one block of the scaled logits of a row."""
    row = (tl.program_id(0) // n_blocks).to(tl.int64)
    block = tl.program_id(0) % n_blocks
    column = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits + row * stride + column, mask=column < n_vocab, other=float("-inf"))
    x = x.to(tl.float32) * slope
    top = tl.max(x, 0)
    finite = tl.maximum(top, -1e30)  # a block may hold -inf alone
    tl.store(tops + row * n_blocks + block, top)
    tl.store(sums + row * n_blocks + block, tl.sum(tl.exp2(x - finite), 0))


@triton.jit
def pick_kernel(
    logits, tops, sums, numbers, tokens, log_probs, n_vocab, stride, slope, n_blocks,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """The block of a row in which cumulated probabilities pass its number, and the token there.

    Sums over blocks and within one are float64: of a large vocabulary, the tail counts too.
    """
    row = tl.program_id(0).to(tl.int64)
    block = tl.arange(0, BLOCKS)
    known = block < n_blocks
    top = tl.load(tops + row * n_blocks + block, mask=known, other=float("-inf"))
    part = tl.load(sums + row * n_blocks + block, mask=known, other=0.0)
    peak = tl.max(top, 0)
    weight = (part * tl.exp2(top - peak)).to(tl.float64)
    total = tl.sum(weight, 0)
    wanted = tl.load(numbers + row) * total
    passed = tl.sum((known & (tl.cumsum(weight, 0) <= wanted)).to(tl.int32), 0)
    chosen = tl.minimum(passed, tl.max(tl.where(weight > 0, block, 0), 0))  # rounding may pass all
    rest = wanted - tl.sum(tl.where(block < chosen, weight, 0.0), 0)
    place = tl.arange(0, BLOCK)
    column = chosen * BLOCK + place
    x = tl.load(logits + row * stride + column, mask=column < n_vocab, other=float("-inf"))
    x = x.to(tl.float32) * slope - peak
    mass = tl.exp2(x).to(tl.float64)
    ahead = tl.sum(((tl.cumsum(mass, 0) <= rest) & (column < n_vocab)).to(tl.int32), 0)
    found = tl.minimum(ahead, tl.max(tl.where(mass > 0, place, 0), 0))
    own = tl.sum(tl.where(place == found, x, 0.0), 0)
    tl.store(tokens + row, (chosen * BLOCK + found).to(tl.int64))
    tl.store(log_probs + row, own / LOG2_E - tl.log(total).to(tl.float32))


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """Launch `gated_kernel`."""
    out = torch.empty_like(gate)
    size = gate.numel()
    launch(gated_kernel, (triton.cdiv(size, BLOCK),), gate, gate, up, out, size, BLOCK=BLOCK)
    return out


def gated_backward(gate: Tensor, up: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Launch `gated_backward_kernel`."""
    to_gate, to_up = torch.empty_like(gate), torch.empty_like(up)
    size = gate.numel()
    grid = (triton.cdiv(size, BLOCK),)
    launch(gated_backward_kernel, grid, gate, gate, up, gradient, to_gate, to_up, size, BLOCK=BLOCK)
    return to_gate, to_up


def normed(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Launch `normed_kernel` over [N, H]."""
    n_rows, size = x.shape
    out = torch.empty_like(x)
    scales = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(size)
    launch(normed_kernel, (n_rows,), x, x, weight, out, scales, size, eps, BLOCK=block)
    return out, scales


def normed_backward(
    gradient: Tensor, x: Tensor, weight: Tensor, scale: Tensor, add: Tensor
) -> tuple[Tensor, Tensor]:
    """Launch `normed_backward_kernel` over [N, H]."""
    n_rows, size = x.shape
    span = max(1, triton.cdiv(n_rows, PROGRAMS))
    n_parts = triton.cdiv(n_rows, span)
    out = torch.empty_like(x)
    parts = torch.empty((n_parts, size), dtype=torch.float32, device=x.device)
    launch(
        normed_backward_kernel,
        (n_parts,),
        x,
        gradient,
        x,
        weight,
        scale,
        add,
        out,
        parts,
        n_rows,
        size,
        span,
        BLOCK=triton.next_power_of_2(size),
    )
    return out, parts.sum(0).to(weight.dtype)


def rotated(x: Tensor, cos: Tensor, sin: Tensor, sign: float = 1.0) -> Tensor:
    """Launch `rotate_kernel` over [N, H, D]."""
    n_tokens, n_heads, width = x.shape
    out = torch.empty_like(x)
    launch(
        rotate_kernel,
        (n_tokens,),
        x,
        x,
        cos,
        sin,
        out,
        n_heads,
        sign,
        HALF=width // 2,
        HEADS=triton.next_power_of_2(n_heads),
    )
    return out


def store(
    q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, write: Tensor, *cache: Tensor
) -> Tensor:
    """Launch `store_kernel`; returns q, turned."""
    keys, values = cache
    n_slots, n_heads, width = q.shape
    turned = torch.empty_like(q)
    launch(
        store_kernel,
        (n_slots,),
        q,
        q,
        k,
        v,
        cos,
        sin,
        write,
        turned,
        keys,
        values,
        n_heads,
        k.shape[1],
        keys.shape[2],
        HALF=width // 2,
        HEADS=triton.next_power_of_2(n_heads),
        SHARED=triton.next_power_of_2(k.shape[1]),
        num_warps=2,
    )
    return turned


def attend(q: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, scale: float) -> Tensor:
    """Launch `attend_kernel`, and `join_kernel` where slots are too few for a device."""
    n_slots, n_heads, width = q.shape
    n_shared, capacity = keys.shape[1:3]
    n_pairs = n_slots * n_shared
    n_parts = max(1, min(triton.cdiv(capacity, KEYS), PROGRAMS // n_pairs))
    out = torch.empty_like(q)
    wide: Any = {"dtype": torch.float32, "device": q.device}
    parts = out if n_parts == 1 else torch.empty((n_slots, n_heads, n_parts, width), **wide)
    sums = torch.empty((n_slots, n_heads, n_parts), **wide)
    launch(
        attend_kernel,
        (n_pairs, n_parts),
        q,
        q,
        keys,
        values,
        lengths,
        parts,
        sums,
        scale * 1.4426950408889634,
        n_shared,
        capacity,
        n_parts,
        GROUP=n_heads // n_shared,
        ROWS=max(16, triton.next_power_of_2(n_heads // n_shared)),
        WIDTH=width,
        KEYS=KEYS,
        PRECISION="ieee" if q.dtype == torch.float32 else "tf32",
        WHOLE=n_parts == 1,
        num_warps=2,
        num_stages=2,
    )
    if n_parts > 1:
        launch(
            join_kernel,
            (n_slots * n_heads,),
            q,
            parts,
            sums,
            out,
            n_parts,
            WIDTH=width,
            PARTS=triton.next_power_of_2(n_parts),
        )
    return out


def sample(logits: Tensor, numbers: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Launch `block_sums_kernel` and `pick_kernel`."""
    n_rows, n_vocab = logits.shape
    block = min(4096, triton.next_power_of_2(n_vocab))
    n_blocks = triton.cdiv(n_vocab, block)
    wide: Any = {"dtype": torch.float32, "device": logits.device}
    tops = torch.empty((n_rows, n_blocks), **wide)
    sums, log_probs = torch.empty_like(tops), torch.empty(n_rows, **wide)
    tokens = torch.empty(n_rows, dtype=torch.int64, device=logits.device)
    stride, slope = logits.stride(0), 1.4426950408889634 / temperature
    launch(
        block_sums_kernel,
        (n_rows * n_blocks,),
        logits,
        logits,
        tops,
        sums,
        n_vocab,
        stride,
        slope,
        n_blocks,
        BLOCK=block,
    )
    launch(
        pick_kernel,
        (n_rows,),
        logits,
        logits,
        tops,
        sums,
        numbers,
        tokens,
        log_probs,
        n_vocab,
        stride,
        slope,
        n_blocks,
        BLOCK=block,
        BLOCKS=triton.next_power_of_2(n_blocks),
        num_warps=8,
    )
    return tokens, log_probs
