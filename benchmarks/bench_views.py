"""Views that need neighbours in time: sequences and n-step returns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import data
import floor
import numpy as np
import peers
from data import ACT_DIM, MILLION, OBS_DIM, Transitions
from harness import FLOOR, OURS, Operation, Ratio, Row

N_ENVS = 8
GAMMA = 0.99
SEQUENCE_ORDER = "obs next_obs action reward terminated truncated"


def rows() -> Iterator[Row]:
    yield sequences()
    yield n_step()


def one_stream() -> Transitions:
    """A million rows of a single environment, as one table."""
    parts = [part.columns() for part in data.streams(MILLION, n_envs=1)]
    return Transitions(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def our_streams() -> Any:
    """A million rows of eight environments, pushed as they step."""
    import sharpwave as sw

    buffer = sw.ReplayBuffer(MILLION, OBS_DIM, ACT_DIM, n_envs=N_ENVS)
    return peers.fill(buffer, data.streams(MILLION, N_ENVS))


def sequences() -> Row:
    def ours() -> Operation:
        import sharpwave as sw

        sample, view = our_streams().sample, sw.Sequence(50)
        return lambda: sample(16, view=view)

    def rlox() -> Operation:
        import rlox as library

        buffer = library.SequenceReplayBuffer(MILLION, OBS_DIM, ACT_DIM)
        peers.fill_rlox_one_by_one(buffer.push, one_stream(), SEQUENCE_ORDER)
        return peers.seeded(buffer.sample_sequences, 16, 50)

    def least() -> Operation:
        return partial(floor.load().sample_sequences, peers.records(one_stream()), 16, 50)

    return Row(
        "sequences 16 x 50 of 1M",
        {OURS: ours, "rlox": rlox, FLOOR: least},
        [Ratio("rlox", 2.5)],
        note="episodes of 1000 steps; the floor does not look for their ends",
    )


def n_step() -> Row:
    def ours() -> Operation:
        import sharpwave as sw

        sample, view = our_streams().sample, sw.NStep(5, gamma=GAMMA)
        return lambda: sample(256, view=view)

    def sb3() -> Operation:
        options = {"kind": "NStepReplayBuffer", "n_steps": 5, "gamma": GAMMA}
        buffer = peers.sb3(MILLION, one_stream(), **options)
        return partial(buffer.sample, 256)

    def cpprb() -> Operation:
        folded = {"size": 5, "gamma": GAMMA, "rew": "rew", "next": "next_obs"}
        buffer = peers.cpprb(MILLION, Nstep=folded)
        peers.fill_cpprb(buffer, peers.chunks(one_stream(), 1000))
        return partial(buffer.sample, 256)

    return Row(
        "n-step(5) batch 256 of 1M",
        {OURS: ours, "SB3": sb3, "cpprb": cpprb},
        [Ratio("cpprb", 1.0), Ratio("SB3", 6.0)],
        note="cpprb folds the steps when they are pushed, the others when they are sampled",
    )
