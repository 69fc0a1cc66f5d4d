"""The recurrence x_t = b_t + a_t x_{t+1} as an associative scan, and the blocks it runs in."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

TINY = tl.constexpr(1e-37)


class Blocks(NamedTuple):
    """How a rollout is cut: one program scans BLOCK_N environments, BLOCK_T steps at a time."""

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
    """`chain` that also keeps (p, q), the same without the earliest map.

    That makes x_{t+1} known beside x_t.
    """
    full_a, full_b = chain(a_later, b_later, a, b)
    rest_p, rest_q = chain(a_later, b_later, p, q)
    return full_a, full_b, rest_p, rest_q


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


def laid_out(tensor: Tensor | None, like: Tensor) -> Tensor | None:
    """The tensor as [T, N] with the strides of `like`."""
    if tensor is None:
        return None
    tensor = as_matrix(tensor)
    if tensor.stride() == like.stride():
        return tensor
    copy = torch.empty_strided(like.shape, like.stride(), dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)


def choose_blocks(n_steps: int, n_envs: int, stride_n: int, itemsize: int) -> Blocks:
    """Blocks that keep every multiprocessor busy and every access whole.

    With many environments a thread scans its own ones in registers. With few, lanes share the steps
    of an environment. Where the steps of an environment lie side by side lanes always do.
    """
    if stride_n != 1 and n_envs > 1:  # env-major
        steps = min(power_of_two(n_steps), 1024)
        return sized(steps, max(1, min(2048 // steps, power_of_two(n_envs), 8)))
    if n_envs >= 16384:
        return Blocks(min(power_of_two(n_steps), 4), 512 // itemsize, 1)
    envs = min(power_of_two(n_envs), max(32 // itemsize, min(32, power_of_two(n_envs // 128))))
    return sized(min(power_of_two(n_steps), 8192 // envs * 4 // itemsize), envs)


def sized(steps: int, envs: int) -> Blocks:
    """Blocks with at most 16 elements per thread: more would not fit the registers."""
    return Blocks(steps, envs, min(max(steps * envs // 512, 1), 16))


def power_of_two(number: int) -> int:
    """The smallest power of two that is not below the number."""
    return 1 << max(number - 1, 0).bit_length()
