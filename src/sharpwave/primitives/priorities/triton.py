"""Two-level sums of priorities in Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sharpwave.primitives.launching import launch

LARGEST = tl.constexpr(1e30)
LOW_HALF = tl.constexpr(0xFFFFFFFF)
NONE = tl.constexpr(2**31 - 1)


@triton.jit
def priority_of(entry):
    """The priority in the low half of an entry."""
    return (entry & LOW_HALF).to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def claim_kernel(
    entries, highest, index, given, capacity, count, alpha, epsilon,
    ERRORS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Every row takes the entry of the last writer: the largest of (place + 1, priority).

    `highest` is read at 0 and raised at 1, so that all programs read the same.
    """
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    at = tl.load(index + place, mask=inside, other=-1)
    priority = tl.load(given + place, mask=inside, other=0).to(tl.float32)
    if ERRORS:
        priority = tl.exp2(alpha * tl.log2(tl.abs(priority) + epsilon))
        priority = tl.where(priority < float("inf"), priority, tl.load(highest))
    priority = tl.minimum(tl.where(priority > 0, priority, 0.0), LARGEST)
    bits = priority.to(tl.int32, bitcast=True)
    entry = ((place + 1).to(tl.int64) << 32) | bits.to(tl.int64)
    exists = inside & (at >= 0) & (at < capacity)
    tl.atomic_max(entries + at, entry, mask=exists, sem="relaxed")
    # The bits of positive numbers have their order.
    rising = (highest + 1).to(tl.pointer_type(tl.int32))
    tl.atomic_max(rising, tl.max(tl.where(exists, bits, 0), 0), sem="relaxed")


@triton.jit
def renew_kernel(
    entries, sums, minima, maxima, highest, index, capacity, count,
    ROWS: tl.constexpr, LEAVES: tl.constexpr,
):  # fmt: skip
    """Sum the touched blocks anew and clear the high halves; twice the same block does no harm."""
    if tl.program_id(0) == 0:
        tl.store(highest, tl.load(highest + 1))
    place = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = tl.load(index + place, mask=place < count, other=-1)
    exists = (at >= 0) & (at < capacity)
    block = at // LEAVES
    leaf = block[:, None] * LEAVES + tl.arange(0, LEAVES)[None, :]
    priority = priority_of(tl.load(entries + leaf, mask=exists[:, None], other=0))
    tl.store(sums + block, tl.sum(priority, 1), mask=exists)
    tl.store(minima + block, tl.min(tl.where(priority > 0, priority, float("inf")), 1), mask=exists)
    tl.store(maxima + block, tl.max(priority, 1), mask=exists)
    entry = tl.load(entries + at, mask=exists, other=0)
    tl.store(entries + at, entry & LOW_HALF, mask=exists)


@triton.jit(do_not_specialize=["begin", "end"])
def fill_kernel(
    entries, sums, minima, maxima, highest, begin, end, LEAVES: tl.constexpr
):  # fmt: skip
    """Give rows from begin to end the highest priority; a program has a block of its own."""
    block = (begin // LEAVES).to(tl.int64) + tl.program_id(0)
    leaf = block * LEAVES + tl.arange(0, LEAVES)
    entry = tl.load(entries + leaf)
    priority = tl.where((leaf >= begin) & (leaf < end), tl.load(highest), priority_of(entry))
    tl.store(entries + leaf, priority.to(tl.int32, bitcast=True).to(tl.int64))
    tl.store(sums + block, tl.sum(priority, 0))
    tl.store(minima + block, tl.min(tl.where(priority > 0, priority, float("inf")), 0))
    tl.store(maxima + block, tl.max(priority, 0))


@triton.jit
def sample_kernel(
    entries, sums, uniforms, index, probability, count, n_blocks,
    STRATIFIED: tl.constexpr, SAMPLES: tl.constexpr, LEAVES: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Find the block of every sample, then its leaf.

    The first part that is positive and whose prefix sum is above the target is the one; where
    rounding leaves none, the last positive part.
    """
    sample = tl.program_id(0) * SAMPLES + tl.arange(0, SAMPLES)
    inside = sample < count
    place = tl.arange(0, CHUNK)
    total = tl.full((), 0.0, tl.float64)
    for start in range(0, n_blocks, CHUNK):
        part = tl.load(sums + start + place, mask=start + place < n_blocks, other=0.0)
        total += tl.sum(part.to(tl.float64), 0)
    share = tl.load(uniforms + sample, mask=inside, other=0.0).to(tl.float64)
    if STRATIFIED:
        share = (sample.to(tl.float64) + share) / (tl.full((), 1.0, tl.float64) * count)
    target = share * total

    block = tl.full([SAMPLES], NONE, tl.int32)
    before = tl.zeros([SAMPLES], tl.float64)
    carry = total - total
    last = -1
    last_before = carry
    for start in range(0, n_blocks, CHUNK):
        number = start + place
        part = tl.load(sums + number, mask=number < n_blocks, other=0.0).to(tl.float64)
        prefix = carry + tl.cumsum(part, 0)
        above = (prefix[None, :] > target[:, None]) & (part > 0)[None, :]
        first = tl.min(tl.where(above, number[None, :], NONE), 1)
        start_of = tl.sum(
            tl.where(number[None, :] == first[:, None], (prefix - part)[None, :], 0.0), 1
        )
        before = tl.where(block == NONE, start_of, before)
        block = tl.minimum(block, first)
        latest = tl.max(tl.where(part > 0, number, -1), 0)
        latest_before = tl.sum(tl.where(number == latest, prefix - part, 0.0), 0)
        last_before = tl.where(latest >= 0, latest_before, last_before)
        last = tl.maximum(last, latest)
        carry += tl.sum(part, 0)
    before = tl.where(block == NONE, last_before, before)
    block = tl.maximum(tl.minimum(block, last), 0)

    leaf = tl.arange(0, LEAVES)
    at = block.to(tl.int64)[:, None] * LEAVES + leaf[None, :]
    priority = priority_of(tl.load(entries + at, mask=inside[:, None], other=0))
    prefix = tl.cumsum(priority, 1)
    above = (prefix > (target - before).to(tl.float32)[:, None]) & (priority > 0)
    first = tl.min(tl.where(above, leaf[None, :], NONE), 1)
    latest = tl.max(tl.where(priority > 0, leaf[None, :], 0), 1)
    chosen = tl.minimum(first, latest)
    own = tl.sum(tl.where(leaf[None, :] == chosen[:, None], priority, 0.0), 1)
    tl.store(index + sample, block.to(tl.int64) * LEAVES + chosen, mask=inside)
    chance = tl.where(own > 0, (own.to(tl.float64) / total).to(tl.float32), 0.0)
    tl.store(probability + sample, chance, mask=inside)


@triton.jit
def weights_kernel(
    sums, minima, probability, beta, weights, count, n_blocks,
    OF_BATCH: tl.constexpr, BETA_IS_TENSOR: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """(min P / P)^β, with the smallest P of all rows or of the batch."""
    place = tl.arange(0, CHUNK)
    smallest = float("inf")
    if OF_BATCH:
        for start in range(0, count, CHUNK):
            inside = start + place < count
            part = tl.load(probability + start + place, mask=inside, other=float("inf"))
            smallest = tl.minimum(smallest, tl.min(part, 0).to(tl.float32))
    else:
        total = 0.0
        for start in range(0, n_blocks, CHUNK):
            inside = start + place < n_blocks
            total += tl.sum(tl.load(sums + start + place, mask=inside, other=0.0), 0)
            part = tl.load(minima + start + place, mask=inside, other=float("inf"))
            smallest = tl.minimum(smallest, tl.min(part, 0))
        smallest = smallest / total
    if BETA_IS_TENSOR:
        exponent = tl.load(beta).to(tl.float32)
    else:
        exponent = beta
    sample = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    chance = tl.load(probability + sample, mask=sample < count, other=1.0).to(tl.float32)
    ratio = smallest / chance
    tl.store(weights + sample, tl.exp2(exponent * tl.log2(ratio)), mask=sample < count)


def update(
    entries: Tensor,
    sums: Tensor,
    minima: Tensor,
    maxima: Tensor,
    highest: Tensor,
    index: Tensor,
    given: Tensor,
    capacity: int,
    leaves: int,
    exponents: tuple[float, float] | None = None,
) -> None:
    """Launch `claim_kernel` and `renew_kernel`; with (α, ε) TD errors are given."""
    count = index.shape[0]
    if count == 0:
        return
    launch(
        claim_kernel,
        (-(-count // 256),),
        sums,
        entries,
        highest,
        index,
        given,
        capacity,
        count,
        *(exponents or (0.0, 0.0)),
        ERRORS=exponents is not None,
        BLOCK=256,
        num_warps=4,
    )
    rows = max(1, 2048 // leaves)
    launch(
        renew_kernel,
        (-(-count // rows),),
        sums,
        entries,
        sums,
        minima,
        maxima,
        highest,
        index,
        capacity,
        count,
        ROWS=rows,
        LEAVES=leaves,
        num_warps=4,
    )


def fill(
    entries: Tensor,
    sums: Tensor,
    minima: Tensor,
    maxima: Tensor,
    highest: Tensor,
    begin: int,
    end: int,
    leaves: int,
) -> None:
    """Launch `fill_kernel`; there is at least one row."""
    launch(
        fill_kernel,
        ((end - 1) // leaves - begin // leaves + 1,),
        sums,
        entries,
        sums,
        minima,
        maxima,
        highest,
        begin,
        end,
        LEAVES=leaves,
        num_warps=4,
    )


def sample(
    entries: Tensor, sums: Tensor, uniforms: Tensor, stratified: bool, leaves: int
) -> tuple[Tensor, Tensor]:
    """Launch `sample_kernel`."""
    count = uniforms.shape[0]
    index = torch.empty(count, dtype=torch.int64, device=sums.device)
    probability = torch.empty(count, dtype=torch.float32, device=sums.device)
    if count == 0:
        return index, probability
    samples = 8
    launch(
        sample_kernel,
        (-(-count // samples),),
        sums,
        entries,
        sums,
        uniforms,
        index,
        probability,
        count,
        sums.shape[0],
        STRATIFIED=stratified,
        SAMPLES=samples,
        LEAVES=leaves,
        CHUNK=512,
        num_warps=4,
    )
    return index, probability


def weights(
    sums: Tensor, minima: Tensor, probability: Tensor, beta: float | Tensor, of_batch: bool
) -> Tensor:
    """Launch `weights_kernel`."""
    count = probability.shape[0]
    found = torch.empty(count, dtype=torch.float32, device=sums.device)
    if count:
        launch(
            weights_kernel,
            (-(-count // 512),),
            sums,
            sums,
            minima,
            probability,
            beta,
            found,
            count,
            sums.shape[0],
            OF_BATCH=of_batch,
            BETA_IS_TENSOR=isinstance(beta, Tensor),
            BLOCK=512,
            CHUNK=512,
            num_warps=4,
        )
    return found
