"""Group advantages and token KL in Triton."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from sharpwave.primitives.backend import numel_fits_int32
from sharpwave.primitives.launching import launch
from sharpwave.primitives.scan import power_of_two

ESTIMATORS = {"k1": 1, "k2": 2, "k3": 3, "weighted": 4}
LEAST_STD = tl.constexpr(1e-8)
SMALL = tl.constexpr(0.1)
TILE = 2048


@triton.jit
def group_kernel(
    rewards, mask, out, n_groups, size, eps,
    DDOF: tl.constexpr, MASKED: tl.constexpr, LEAVE_ONE_OUT: tl.constexpr, SCALED: tl.constexpr,
    WIDE: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """A reward is taken off before anything is summed, so that equals give 0."""
    dtype = out.dtype.element_ty
    group = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    if WIDE:
        group = group.to(tl.int64)
    place = tl.arange(0, WIDTH)
    inside = (group < n_groups)[:, None] & (place < size)[None, :]
    at = group[:, None] * size + place[None, :]
    reward = tl.load(rewards + at, mask=inside, other=0).to(dtype)
    scored = inside
    if MASKED:
        scored = inside & (tl.load(mask + at, mask=inside, other=0) != 0)
        first = tl.min(tl.where(scored, reward, float("inf")), 1)
    else:
        first = tl.load(rewards + group * size, mask=group < n_groups, other=0).to(dtype)
    count = tl.maximum(tl.sum(scored.to(tl.int32), 1), 1)
    deviation = tl.where(scored, reward - first[:, None], 0.0)
    mean = tl.sum(deviation, 1) / count
    deviation = tl.where(scored, deviation - mean[:, None], 0.0)
    advantage = deviation
    if LEAVE_ONE_OUT:
        advantage *= (count.to(dtype) / tl.maximum(count - 1, 1))[:, None]
    if SCALED:
        std = tl.sqrt(tl.sum(deviation * deviation, 1) / tl.maximum(count - DDOF, 1))
        advantage = tl.where((std < LEAST_STD)[:, None], 0.0, advantage / (std + eps)[:, None])
    tl.store(out + at, advantage, mask=inside)


@triton.jit
def kl_term(p, q, ESTIMATOR: tl.constexpr):
    """The term of one token. k3 is a series near 0, where its parts cancel."""
    d = tl.where(p == q, 0.0, p - q)
    if ESTIMATOR == 1:
        return d
    elif ESTIMATOR == 2:
        return d * d * 0.5
    elif ESTIMATOR == 3:
        tail = 1 / 24.0 - d * (1 / 120.0 - d * (1 / 720.0 - d * (1 / 5040.0)))
        series = d * d * (0.5 - d * (1 / 6.0 - d * tail))
        return tl.where(tl.abs(d) < SMALL, series, tl.exp(-d) - 1.0 + d)
    else:
        return tl.where(p == float("-inf"), 0.0, tl.exp(p) * d)


@triton.jit
def kl_kernel(
    log_p, log_q, mask, out, n_rows, length,
    ESTIMATOR: tl.constexpr, MASKED: tl.constexpr, WIDE: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Terms in the dtype of the result, sums in float64."""
    dtype = out.dtype.element_ty
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    if WIDE:
        row = row.to(tl.int64)
    place = tl.arange(0, WIDTH)
    total = tl.zeros([ROWS, WIDTH], tl.float64)
    for start in range(0, length, WIDTH):
        token = start + place
        inside = (row < n_rows)[:, None] & (token < length)[None, :]
        at = row[:, None] * length + token[None, :]
        p = tl.load(log_p + at, mask=inside, other=0).to(dtype)
        q = tl.load(log_q + at, mask=inside, other=0).to(dtype)
        term = kl_term(p, q, ESTIMATOR)
        if MASKED:
            counts = tl.load(mask + at, mask=inside, other=0)
            term = tl.where(counts != 0, term, 0.0)
        total += term.to(tl.float64)
    tl.store(out + row, tl.sum(total, 1).to(dtype), mask=row < n_rows)


def group_advantages(
    rewards: Tensor,
    mask: Tensor | None,
    out: Tensor,
    *,
    ddof: int,
    eps: float,
    leave_one_out: bool,
    scaled: bool,
) -> None:
    """Launch `group_kernel`."""
    n_groups, size = rewards.shape
    if rewards.numel() == 0:
        return
    width = power_of_two(size)
    rows = max(1, TILE // width)
    launch(
        group_kernel,
        (-(-n_groups // rows),),
        rewards,
        rewards,
        rewards if mask is None else mask,
        out,
        n_groups,
        size,
        eps,
        DDOF=ddof,
        MASKED=mask is not None,
        LEAVE_ONE_OUT=leave_one_out,
        SCALED=scaled,
        WIDE=not numel_fits_int32(rewards),
        ROWS=rows,
        WIDTH=width,
        num_warps=8 if width > TILE else 4,
    )


def token_kl(
    log_p: Tensor, log_q: Tensor, mask: Tensor | None, estimator: str, out: Tensor
) -> None:
    """Launch `kl_kernel`."""
    n_rows, length = log_p.shape
    if n_rows == 0:
        return
    width = min(power_of_two(length), TILE)
    rows = TILE // width
    launch(
        kl_kernel,
        (-(-n_rows // rows),),
        log_p,
        log_p,
        log_q,
        log_p if mask is None else mask,
        out,
        n_rows,
        length,
        ESTIMATOR=ESTIMATORS[estimator],
        MASKED=mask is not None,
        WIDE=not numel_fits_int32(log_p),
        ROWS=rows,
        WIDTH=width,
        num_warps=4,
    )
