"""The memory that graphs of updates read."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sharpwave.learners.graphs import _Memory


@dataclass(frozen=True)
class Batch:
    """Two columns."""

    obs: Tensor
    rewards: Tensor


def test_a_batch_that_stays_where_it_is_is_not_copied() -> None:
    memory, batch = _Memory(), Batch(torch.zeros(4, 2), torch.zeros(4))
    assert memory.take(batch) == (batch, True)
    batch.obs.fill_(7)
    static, is_new = memory.take(Batch(batch.obs, batch.rewards))
    assert not is_new
    assert static.obs is batch.obs
    assert static.rewards is batch.rewards


def test_a_batch_of_new_memory_is_copied_and_leaves_the_old_one_alone() -> None:
    memory, first = _Memory(), Batch(torch.zeros(4, 2), torch.zeros(4))
    memory.take(first)
    # Views of another stride, as sequences that were gathered batch first.
    second = Batch(torch.ones(2, 4).T, first.rewards)
    static, is_new = memory.take(second)
    assert is_new
    assert static.obs.data_ptr() not in (first.obs.data_ptr(), second.obs.data_ptr())
    assert static.rewards is first.rewards
    for number in (2.0, 3.0):
        again, is_new = memory.take(Batch(torch.full((4, 2), number), first.rewards))
        assert not is_new
        assert again.obs is static.obs
        assert (static.obs == number).all()
    assert (first.obs == 0).all()
    assert (second.obs == 1).all()


def test_a_batch_of_another_shape_is_a_new_one() -> None:
    memory, first = _Memory(), Batch(torch.zeros(4, 2), torch.zeros(4))
    memory.take(first)
    second = Batch(torch.zeros(3, 2), torch.zeros(3))
    assert memory.take(second) == (second, True)
