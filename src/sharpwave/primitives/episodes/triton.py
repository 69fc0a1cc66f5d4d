"""Sums over episodes in Triton."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from sharpwave.primitives.launching import launch
from sharpwave.primitives.scan import power_of_two


@triton.jit
def step_kernel(
    running, ring, count, gains, ended, marks, n_envs, places,
    ROWS: tl.constexpr, SUMS: tl.constexpr, MARKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program goes through the environments, because ends are numbered in their order."""
    before = tl.load(count)
    for start in range(0, n_envs, BLOCK):
        env = start + tl.arange(0, BLOCK)
        inside = env < n_envs
        ends = tl.load(ended + env, mask=inside, other=0) != 0
        slot = (before + tl.cumsum(ends.to(tl.int64), 0)) % places
        for row in tl.static_range(SUMS):
            place = running + row * n_envs + env
            total = tl.load(place, mask=inside, other=0.0)
            for i in tl.static_range(len(ROWS)):
                if ROWS[i] == row:
                    total += tl.load(gains[i] + env, mask=inside, other=0).to(tl.float64)
            tl.store(ring + row * (places + 1) + slot, total, mask=ends)
            tl.store(place, tl.where(ends, 0.0, total), mask=inside)
        for row in tl.static_range(MARKS):
            mark = tl.load(marks + row * n_envs + env, mask=ends, other=0.0)
            tl.store(ring + (SUMS + row) * (places + 1) + slot, mark, mask=ends)
        before += tl.sum(ends.to(tl.int64), 0)
    tl.store(count, before)


def add_step(
    running: Tensor,
    ring: Tensor,
    count: Tensor,
    gains: list[tuple[int, Tensor]],
    ended: Tensor,
    marks: Tensor,
    places: int,
) -> None:
    """Launch `step_kernel`; gains come with the rows that they are added to."""
    n_sums, n_envs = running.shape
    block = min(power_of_two(n_envs), 4096)
    launch(
        step_kernel,
        (1,),
        running,
        running,
        ring,
        count,
        tuple(gain for _, gain in gains),
        ended,
        marks,
        n_envs,
        places,
        ROWS=tuple(row for row, _ in gains),
        SUMS=n_sums,
        MARKS=marks.shape[0],
        BLOCK=block,
        num_warps=max(block // 128, 1),
    )
