"""n-step transitions of steps in a ring in Triton."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from sharpwave.primitives.launching import launch

BLOCK = 64


@triton.jit(do_not_specialize=["n", "position"])
def ahead_kernel(
    rewards, dones, truncateds, index, last_out, total_out, discount_out, cuts,
    n, gamma, num_envs, position, count, n_rows, n_cuts,
    HAS_CUTS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Every lane walks on from one row; those whose episode is over wait for the others."""
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = at < count
    last = tl.load(index + at, mask=inside, other=0)
    exists = inside & (last >= 0) & (last < n_rows)
    total = tl.load(rewards + last, mask=exists, other=0.0).to(tl.float64)
    ended = tl.load(dones + last, mask=exists, other=1) != 0
    factor = tl.full((SIZE,), 1.0, tl.float64) * gamma
    goes_on = exists & ~ended
    for _ in range(1, n):
        following = last + num_envs
        following = tl.where(following >= n_rows, following - n_rows, following)
        slot = following // num_envs
        goes_on = goes_on & (slot != position)
        if HAS_CUTS:
            for c in range(n_cuts):
                goes_on = goes_on & (slot != tl.load(cuts + c))
        last = tl.where(goes_on, following, last)
        reward = tl.load(rewards + last, mask=goes_on, other=0.0).to(tl.float64)
        total += factor * reward
        factor = tl.where(goes_on, factor * gamma, factor)
        ended = tl.load(dones + last, mask=goes_on, other=1) != 0
        goes_on = goes_on & ~ended
    done = tl.load(dones + last, mask=exists, other=1) != 0
    terminated = done & (tl.load(truncateds + last, mask=exists, other=0) == 0)
    tl.store(last_out + at, last, mask=inside)
    tl.store(total_out + at, total.to(tl.float32), mask=inside)
    tl.store(discount_out + at, tl.where(terminated, 0.0, factor).to(tl.float32), mask=inside)


def look_ahead(
    columns: tuple[Tensor, Tensor, Tensor],
    index: Tensor,
    out: tuple[Tensor, Tensor, Tensor],
    *,
    n: int,
    gamma: float,
    num_envs: int,
    position: int,
    cuts: Tensor | None,
) -> None:
    """Launch `ahead_kernel`; there is at least one row."""
    count = index.shape[0]
    launch(
        ahead_kernel,
        (triton.cdiv(count, BLOCK),),
        index,
        *columns,
        index,
        *out,
        index if cuts is None else cuts,
        n,
        gamma,
        num_envs,
        position,
        count,
        columns[0].shape[0],
        0 if cuts is None else cuts.shape[0],
        HAS_CUTS=cuts is not None,
        SIZE=BLOCK,
        num_warps=2,
    )
