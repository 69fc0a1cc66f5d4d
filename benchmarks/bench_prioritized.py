"""Prioritized replay: sample and update, pushing one row, pushing many."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any

import data
import numpy as np
import peers
from data import ACT_DIM, MILLION, OBS_DIM
from harness import OURS, Operation, Ratio, Row

BATCH = 256
PUSH_BATCH = 64
PUSH_ORDER = "obs action reward terminated truncated next_obs"


def rows() -> Iterator[Row]:
    buffers = Prioritized()
    yield sample_and_update(buffers)
    yield push_one(buffers)
    yield push_batch(buffers)


class Prioritized:
    """A million transitions with random priorities in a buffer of every contender."""

    def __init__(self) -> None:
        self.rows = data.transitions(MILLION)
        self.indices = np.arange(MILLION)
        self.priorities = np.random.default_rng(0).exponential(size=MILLION)

    @cached_property
    def ours(self) -> Any:
        """Ours."""
        import sharpwave as sw

        buffer = sw.PrioritizedReplayBuffer(MILLION, OBS_DIM, ACT_DIM)
        peers.fill(buffer, peers.chunks(self.rows))
        buffer.update_priorities(self.indices, self.priorities)
        return buffer

    @cached_property
    def rlox(self) -> Any:
        """The one of rlox."""
        import rlox

        buffer = rlox.PrioritizedReplayBuffer(MILLION, OBS_DIM, ACT_DIM)
        peers.fill_rlox_one_by_one(buffer.push, self.rows, PUSH_ORDER)
        buffer.update_priorities(self.indices.astype(np.uint64), self.priorities)
        return buffer

    @cached_property
    def cpprb(self) -> Any:
        """The one of cpprb."""
        buffer = peers.cpprb(MILLION, "PrioritizedReplayBuffer")
        peers.fill_cpprb(buffer, peers.chunks(self.rows))
        buffer.update_priorities(self.indices, self.priorities)
        return buffer

    @cached_property
    def tianshou(self) -> Any:
        """The one of tianshou."""
        from tianshou.data import PrioritizedReplayBuffer

        buffer = PrioritizedReplayBuffer(MILLION, alpha=0.6, beta=0.4)
        buffer.update(peers.tianshou(self.rows))
        buffer.update_weight(self.indices, self.priorities)
        return buffer


def sample_and_update(buffers: Prioritized) -> Row:
    errors = np.random.default_rng(1).exponential(size=BATCH)
    errors_f32 = errors.astype(np.float32)

    def ours() -> Operation:
        sample, update = buffers.ours.sample, buffers.ours.update_priorities
        return lambda: update(sample(BATCH)["indices"], errors_f32)

    def rlox() -> Operation:
        sample = peers.seeded(buffers.rlox.sample, BATCH)
        update = buffers.rlox.update_priorities
        return lambda: update(sample()["indices"], errors)

    def cpprb() -> Operation:
        sample, update = buffers.cpprb.sample, buffers.cpprb.update_priorities
        return lambda: update(sample(BATCH)["indexes"], errors)

    def tianshou() -> Operation:
        sample, update = buffers.tianshou.sample, buffers.tianshou.update_weight
        return lambda: update(sample(BATCH)[1], errors)

    return Row(
        "prioritized sample + update 256 of 1M",
        {OURS: ours, "rlox": rlox, "cpprb": cpprb, "tianshou": tianshou},
        [Ratio("best", 6.0), Ratio("rlox", 10.0)],
    )


def push_one(buffers: Prioritized) -> Row:
    step = peers.one(buffers.rows)
    columns = peers.cpprb_arguments(next(peers.chunks(buffers.rows, 1)))
    return Row(
        "prioritized push one, 1M rows",
        {
            OURS: lambda: partial(buffers.ours.push, *step),
            "rlox": lambda: partial(buffers.rlox.push, *step),
            "cpprb": lambda: partial(buffers.cpprb.add, **columns),
            "tianshou": lambda: partial(buffers.tianshou.add, peers.tianshou_step(buffers.rows)),
        },
        [Ratio("rlox", 1.3)],
    )


def push_batch(buffers: Prioritized) -> Row:
    step = peers.one(buffers.rows)
    batch = next(peers.chunks(buffers.rows, PUSH_BATCH))

    def rlox() -> Operation:
        push = buffers.rlox.push

        def push_all() -> None:
            for _ in range(PUSH_BATCH):
                push(*step)

        return push_all

    return Row(
        f"prioritized push batch of {PUSH_BATCH}, per row",
        {
            OURS: lambda: partial(buffers.ours.push_batch, *batch.columns()),
            "rlox": rlox,
            "cpprb": lambda: partial(buffers.cpprb.add, **peers.cpprb_arguments(batch)),
        },
        [Ratio("rlox", 5.0)],
        ops_per_call=PUSH_BATCH,
        note=f"rlox has no batch push: {PUSH_BATCH} single ones",
    )
