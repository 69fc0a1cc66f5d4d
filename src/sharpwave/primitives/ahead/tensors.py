"""n-step transitions of steps in a ring, on the device where they are kept."""

from __future__ import annotations

import torch
from torch import Tensor

from sharpwave.primitives.backend import HAS_TRITON, uses_triton

if HAS_TRITON:
    from sharpwave.primitives.ahead import triton as jit

__all__ = ["look_ahead"]


@torch.no_grad()
def look_ahead(
    rewards: Tensor,
    dones: Tensor,
    truncateds: Tensor,
    index: Tensor,
    *,
    n: int,
    gamma: float,
    num_envs: int,
    position: int,
    cuts: Tensor | None = None,
    out: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """n-step returns from each of some rows on; in one launch on CUDA.

    With m <= n the steps really taken until the episode ends or the data does,
    rewards = Σ_{i<m} γ^i r_{t+i} and discounts = γ^m, or 0 where the last of them terminated.

    Args:
        rewards: [R] float32, a ring of R / num_envs slots. The row of environment e in slot t is
            t * num_envs + e.
        dones: [R] bool, where an episode ended.
        truncateds: [R] bool, where it ended by being cut.
        index: [B] int64, rows, each from 0 to R - 1. On CUDA nobody looks: outside there are no
            rewards and no discount.
        n: The most steps to take.
        gamma: The discount γ.
        num_envs: Rows in a slot.
        position: The slot of the oldest step, or the first empty one: it follows no other.
        cuts: [C] int64, other slots whose steps do not follow those in the slots before.
        out: Two contiguous float32 tensors [B] to write rewards and discounts into.

    Returns:
        The rows of the last steps [B] int64, rewards [B] float32 and discounts [B] float32.

    Example:
        >>> rewards, ended = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([False, False, True])
        >>> rows, never = torch.tensor([0, 1]), torch.zeros(3, dtype=torch.bool)
        >>> last, total, discounts = look_ahead(
        ...     rewards, ended, never, rows, n=2, gamma=0.5, num_envs=1, position=0
        ... )
        >>> last.tolist(), total.tolist(), discounts.tolist()
        ([1, 2], [2.0, 4.0], [0.25, 0.0])
    """
    last = torch.empty_like(index)
    total, discounts = out or (
        torch.empty_like(index, dtype=torch.float32),
        torch.empty_like(index, dtype=torch.float32),
    )
    if uses_triton(rewards):
        if len(index):
            jit.look_ahead(
                (rewards, dones, truncateds),
                index,
                (last, total, discounts),
                n=n,
                gamma=gamma,
                num_envs=num_envs,
                position=position,
                cuts=cuts,
            )
        return last, total, discounts
    last.copy_(index)
    reward_sum = rewards[index].double()
    factor = torch.full_like(reward_sum, gamma)
    goes_on = ~dones[index]
    for _ in range(n - 1):
        following = (last + num_envs) % len(rewards)
        slot = following // num_envs
        goes_on &= slot != position
        if cuts is not None:
            goes_on &= ~torch.isin(slot, cuts)
        torch.where(goes_on, following, last, out=last)
        reward_sum += torch.where(goes_on, factor * rewards[last], 0.0)
        factor *= torch.where(goes_on, gamma, 1.0)
        goes_on &= ~dones[last]
    total.copy_(reward_sum)
    discounts.copy_(factor.masked_fill_(dones[last] & ~truncateds[last], 0.0))
    return last, total, discounts
