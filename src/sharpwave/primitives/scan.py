"""The recurrence x_t = b_t + a_t x_{t+1}, walked by lanes that an associative scan joins.

A rollout is cut into blocks of LANES x STEPS steps, from the last to the first. Inside a block
every lane walks its STEPS steps alone, the scan tells every lane what comes in from the later ones,
and the lane walks again with that. With one lane there is nothing to join, and one walk is enough.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

TINY = tl.constexpr(1e-37)
FEW = 16384  # environments below which lanes share the steps of one


class Blocks(NamedTuple):
    """Block sizes into which a rollout is cut."""

    lanes: int
    steps: int
    envs: int
    warps: int


@triton.jit
def chain(a_later, b_later, a, b):
    """One map after another: x -> b + a (b_later + a_later x).

    An exact 0 in `a` is the end of an episode, past which not even NaN comes; a product that only
    rounds to 0 must not become one.
    """
    product = a * a_later
    lost = (product == 0) & (a != 0) & (a_later != 0)
    return tl.where(lost, TINY, product), tl.where(a == 0, b, b + a * b_later)


@triton.jit
def chain_both(a_later, b_later, p_later, q_later, a, b, p, q):
    """`chain` that also keeps (p, q), the same without the earliest map: an exclusive scan."""
    full_a, full_b = chain(a_later, b_later, a, b)
    rest_p, rest_q = chain(a_later, b_later, p, q)
    return full_a, full_b, rest_p, rest_q


@triton.jit
def walk(factor, offset, x):
    """One step, past whose end not even NaN comes."""
    return tl.where(factor == 0, offset, offset + factor * x)


@triton.jit
def incoming(factors, offsets, carry, LANES: tl.constexpr, STEPS: tl.constexpr):
    """X after the last step of every lane [LANES, N], given x after the block [N]."""
    x = tl.zeros_like(offsets[0]) + carry[None, :]
    if LANES > 1:
        a = factors[STEPS - 1]
        b = offsets[STEPS - 1]
        for k in tl.static_range(STEPS - 2, -1, -1):
            a, b = chain(a, b, factors[k], offsets[k])
        one = tl.zeros_like(a) + 1.0
        a, b, rest, later = tl.associative_scan((a, b, one, one - one), 0, chain_both, reverse=True)
        x = walk(rest, later, x)
    return x


@triton.jit
def first_lane(x, LANES: tl.constexpr):
    """Row 0 of [LANES, N]."""
    lane = tl.arange(0, LANES)
    return tl.sum(tl.where((lane == 0)[:, None], x, 0.0), 0)


@triton.jit
def exact(high, low, like):
    """A number in the dtype of `like`: arguments are float32, so float64 comes in two parts."""
    if like.dtype.element_ty == tl.float64:
        one = tl.full((), 1.0, tl.float64)
        return one * high + one * low
    else:
        return high


def parts(number: float, dtype: torch.dtype) -> tuple[float, float]:
    """A number as the float32 nearest to it and the rest."""
    if dtype == torch.float32 or math.isinf(number):
        return number, 0.0
    high = float(torch.tensor(number, dtype=torch.float32))
    return high, number - high


def as_matrix(tensor: Tensor) -> Tensor:
    """[T] as [T, 1]."""
    return tensor if tensor.dim() == 2 else tensor.unsqueeze(-1)


def laid_out(tensor: Tensor, like: Tensor) -> Tensor:
    """The tensor as [T, N] with the strides of `like`."""
    if tensor.stride() == like.stride():
        return tensor
    tensor = as_matrix(tensor)
    if tensor.stride() == like.stride():
        return tensor
    copy = torch.empty_strided(like.shape, like.stride(), dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)


@lru_cache(maxsize=1024)
def choose_blocks(n_steps: int, n_envs: int) -> Blocks:
    """Blocks that keep every multiprocessor busy and every access whole.

    With many environments a lane has one of its own. With few, lanes share the steps of an
    environment, and a program takes so few environments that all multiprocessors have work.
    """
    if n_envs >= FEW:
        return Blocks(1, min(power_of_two(n_steps), 16), 64, 2)
    envs = min(power_of_two(n_envs), 8 if n_envs <= 2048 else 16 if n_envs <= 8192 else 32)
    steps = min(power_of_two(n_steps), 16 if n_steps >= 1024 else 8)
    lanes = min(power_of_two(-(-n_steps // steps)), 512 // envs)
    return Blocks(lanes, steps, envs, min(max(lanes * envs // 32, 1), 16))


def power_of_two(number: int) -> int:
    """The smallest power of two that is not below the number."""
    return 1 << max(number - 1, 0).bit_length()
