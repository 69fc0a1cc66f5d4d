"""Packing of tokens in Triton."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from sharpwave.primitives.launching import launch

BLOCK = tl.constexpr(512)


@triton.jit
def pack_kernel(tokens, table, first, ids, mask, positions, segments, n, max_len, pad_id):
    """A program fills BLOCK columns of one row, looking through the sequences of the row."""
    parts = tl.cdiv(max_len, BLOCK)
    row = tl.program_id(0) // parts
    column = (tl.program_id(0) % parts) * BLOCK + tl.arange(0, BLOCK)
    begin = tl.load(first + row)
    end = tl.load(first + row + 1)
    source = tl.full([BLOCK], -1, tl.int64)
    position = tl.zeros([BLOCK], tl.int64)
    segment = tl.zeros([BLOCK], tl.int64)
    for entry in range(begin, end):
        place = column - tl.load(table + entry)
        inside = (place >= 0) & (place < tl.load(table + n + entry))
        source = tl.where(inside, tl.load(table + 2 * n + entry) + place, source)
        position = tl.where(inside, place, position)
        segment = tl.where(inside, entry - begin + 1, segment)
    fits = column < max_len
    real = source >= 0
    at = row.to(tl.int64) * max_len + column
    token = tl.load(tokens + source, mask=fits & real, other=0)
    tl.store(ids + at, tl.where(real, token, pad_id), mask=fits)
    tl.store(mask + at, real, mask=fits)
    tl.store(positions + at, position.to(tl.int32), mask=fits)
    tl.store(segments + at, segment.to(tl.int32), mask=fits)


def pack(
    tokens: Tensor,
    table: Tensor,
    first: Tensor,
    pad_id: int,
    ids: Tensor,
    mask: Tensor,
    positions: Tensor,
    segments: Tensor,
) -> None:
    """Launch `pack_kernel`."""
    n_bins, max_len = ids.shape
    if ids.numel() == 0:
        return
    launch(
        pack_kernel,
        (n_bins * -(-max_len // BLOCK.value),),
        tokens,
        tokens,
        table,
        first,
        ids,
        mask,
        positions,
        segments,
        table.shape[1],
        max_len,
        pad_id,
        num_warps=4,
    )
