"""Prioritised replay: sample and update, pushing one row, pushing many."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
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
    yield from sample_and_update()
    yield from pushes()


def sample_and_update() -> Iterator[Row]:
    stored = data.transitions(MILLION)
    rng = np.random.default_rng(0)
    everything = np.arange(MILLION)
    initial = rng.exponential(size=MILLION)
    errors = rng.exponential(size=BATCH)
    errors_f32 = errors.astype(np.float32)

    def ours() -> Operation:
        import sharpwave as sw

        buffer = sw.PrioritizedReplayBuffer(MILLION, OBS_DIM, ACT_DIM)
        peers.fill(buffer, peers.chunks(stored))
        buffer.update_priorities(everything, initial)
        sample, update = buffer.sample, buffer.update_priorities
        return lambda: update(sample(BATCH)["indices"], errors_f32)

    def rlox() -> Operation:
        import rlox as library

        buffer = library.PrioritizedReplayBuffer(MILLION, OBS_DIM, ACT_DIM)
        peers.fill_rlox_one_by_one(buffer.push, stored, PUSH_ORDER)
        buffer.update_priorities(everything.astype(np.uint64), initial)
        sample, update = peers.seeded(buffer.sample, BATCH), buffer.update_priorities
        return lambda: update(sample()["indices"], errors)

    def cpprb() -> Operation:
        buffer = peers.cpprb(MILLION, "PrioritizedReplayBuffer")
        peers.fill_cpprb(buffer, peers.chunks(stored))
        buffer.update_priorities(everything, initial)
        sample, update = buffer.sample, buffer.update_priorities
        return lambda: update(sample(BATCH)["indexes"], errors)

    def tianshou() -> Operation:
        from tianshou.data import PrioritizedReplayBuffer

        buffer = PrioritizedReplayBuffer(MILLION, alpha=0.6, beta=0.4)
        peers.fill_tianshou(buffer, stored)
        buffer.update_weight(everything, initial)
        sample, update = buffer.sample, buffer.update_weight
        return lambda: update(sample(BATCH)[1], errors)

    yield Row(
        "prioritised sample + update 256 of 1M",
        {OURS: ours, "rlox": rlox, "cpprb": cpprb, "tianshou": tianshou},
        [Ratio("best", 6.0), Ratio("rlox", 10.0)],
    )


def pushes() -> Iterator[Row]:
    stored = data.transitions(MILLION)
    first = next(peers.chunks(stored, 1))
    batch = next(peers.chunks(stored, PUSH_BATCH))
    step = (first.obs[0], first.actions[0], float(first.rewards[0]), False, False, first.next_obs[0])

    @cache
    def ours() -> Any:
        import sharpwave as sw

        buffer = sw.PrioritizedReplayBuffer(MILLION, OBS_DIM, ACT_DIM)
        return peers.fill(buffer, peers.chunks(stored))

    @cache
    def rlox() -> Any:
        import rlox as library

        buffer = library.PrioritizedReplayBuffer(MILLION, OBS_DIM, ACT_DIM)
        peers.fill_rlox_one_by_one(buffer.push, stored, PUSH_ORDER)
        return buffer

    @cache
    def cpprb() -> Any:
        buffer = peers.cpprb(MILLION, "PrioritizedReplayBuffer")
        return peers.fill_cpprb(buffer, peers.chunks(stored))

    def tianshou() -> Operation:
        from tianshou.data import PrioritizedReplayBuffer

        buffer = PrioritizedReplayBuffer(MILLION, alpha=0.6, beta=0.4)
        return partial(buffer.add, peers.tianshou_step(stored))

    yield Row(
        "prioritised push one, 1M rows",
        {
            OURS: lambda: partial(ours().push, *step),
            "rlox": lambda: partial(rlox().push, *step),
            "cpprb": lambda: partial(cpprb().add, **peers.cpprb_arguments(first)),
            "tianshou": tianshou,
        },
        [Ratio("rlox", 1.3)],
    )

    def rlox_rows() -> Operation:
        push = rlox().push

        def push_all() -> None:
            for _ in range(PUSH_BATCH):
                push(*step)

        return push_all

    yield Row(
        f"prioritised push batch of {PUSH_BATCH}, per row",
        {
            OURS: lambda: partial(ours().push_batch, *batch.columns()),
            "rlox": rlox_rows,
            "cpprb": lambda: partial(cpprb().add, **peers.cpprb_arguments(batch)),
        },
        [Ratio("rlox", 5.0)],
        ops_per_call=PUSH_BATCH,
        note=f"rlox has no batch push: {PUSH_BATCH} single ones",
    )
