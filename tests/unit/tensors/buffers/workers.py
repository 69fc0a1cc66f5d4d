"""The work of the other processes in the tests of shared buffers."""

from __future__ import annotations

import os
import signal
from typing import Any

import torch

from sharpwave import SharedReplayBuffer

WIDTH = 64


def make(buffer_size: int = 50, num_envs: int = 2, **options: Any) -> SharedReplayBuffer:
    """A buffer whose rows are torn if two of their numbers differ."""
    return SharedReplayBuffer(buffer_size, num_envs, (WIDTH,), (WIDTH,), **options)


def step_of(number: int, num_envs: int) -> list[torch.Tensor]:
    """A step in which every number of row i is number + i / 8."""
    rows = number + torch.arange(num_envs) / 8
    wide = rows[:, None].expand(num_envs, WIDTH)
    return [wide, wide, rows, rows > 0, wide]


def is_whole(batch: Any) -> bool:
    """True if no row is a mixture of two."""
    rewards = batch.rewards[:, None]
    return all(
        bool((part == rewards).all())
        for part in (batch.observations, batch.actions, batch.next_observations)
    ) and bool((batch.dones == (batch.rewards > 0)).all())


def write(buffer: SharedReplayBuffer, first: int, count: int | None) -> None:
    """Add steps, for ever if there is no count."""
    number = first
    while count is None or number < first + count:
        buffer.add(*step_of(number % 2**20, buffer.num_envs))
        number += 1


def read(buffer: SharedReplayBuffer, n_batches: int, batch_size: int, results: Any) -> None:
    """Report how many rows were whole and how many torn."""
    whole = torn = 0
    for _ in range(n_batches):
        if is_whole(buffer.get(batch_size)):
            whole += batch_size
        else:
            torn += 1
    results.put((whole, torn))


def die_in_the_middle(buffer: SharedReplayBuffer) -> None:
    """Write half of a step, and be killed."""
    columns: Any = buffer._columns_here
    column = columns.tensors[1]

    class Killer(list[Any]):
        def __iter__(self) -> Any:
            yield columns_before[0]
            column[:] = -1.0
            os.kill(os.getpid(), signal.SIGKILL)

    columns_before = list(columns.tensors)
    columns.tensors = Killer(columns.tensors)
    buffer.add(*step_of(999, buffer.num_envs))


def first_draw(buffer: SharedReplayBuffer, results: Any) -> None:
    """Report what is drawn first."""
    results.put(buffer.get(20).rewards.tolist())


def add_and_report(buffer: SharedReplayBuffer, results: Any) -> None:
    """Add a step that others then see."""
    buffer.add(*step_of(7, buffer.num_envs))
    results.put(len(buffer))
