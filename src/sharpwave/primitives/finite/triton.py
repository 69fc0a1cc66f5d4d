"""A look for numbers that are not finite, in Triton."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from sharpwave.primitives.launching import launch

BLOCK = 1024


@triton.jit
def look_kernel(mark, tensors, sizes, BLOCK: tl.constexpr):
    """A program looks at one block of every tensor."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    found = tl.zeros([BLOCK], tl.int32)
    for i in tl.static_range(len(tensors)):
        numbers = tl.load(tensors[i] + place, mask=place < sizes[i], other=0.0)
        is_finite = tl.abs(numbers) < float("inf")  # nor is NaN
        found += 1 - is_finite.to(tl.int32)
    tl.store(mark, float("nan"), mask=tl.max(found, 0) > 0)


def look(mark: Tensor, tensors: list[Tensor]) -> None:
    """Launch `look_kernel`."""
    sizes = tuple(tensor.numel() for tensor in tensors)
    if not sizes or max(sizes) == 0:
        return
    grid = (triton.cdiv(max(sizes), BLOCK),)
    launch(look_kernel, grid, mark, mark, tuple(tensors), sizes, BLOCK=BLOCK, num_warps=4)
