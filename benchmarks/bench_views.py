"""Views that need neighbors in time: sequences and n-step returns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import data
import floor
import numpy as np
import peers
from data import ACT_DIM, MILLION, OBS_DIM, Transitions
from harness import FLOOR, OURS, NearFloor, Operation, Ratio, Row

N_ENVS = 8
GAMMA = 0.99
SEQUENCE_ORDER = "obs next_obs action reward terminated truncated"


def rows() -> Iterator[Row]:
    yield sequences()
    yield arrivals()
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


def arrivals() -> Row:
    """Windows for a world model: images and stored latents, no next observations."""
    steps, n_envs, length = 40_000, 4, 65
    image, deter, stoch = (64, 64, 3), 2048, 32

    def ours() -> Operation:
        import sharpwave as sw

        flags = {"terminated": "bool", "truncated": "bool"}
        latents = {"deter": ("float16", (deter,)), "stoch": ("uint8", (stoch,))}
        fields = {"obs": ("uint8", image), "action": "int64", "reward": "float32", **flags}
        buffer = sw.ReplayBuffer(steps, fields={**fields, **latents}, n_envs=n_envs)
        rng = np.random.default_rng(0)
        obs = rng.integers(0, 256, (n_envs, *image), dtype=np.uint8)
        none, floats = np.zeros(n_envs, np.bool_), np.zeros(n_envs, np.float32)
        latent = {"deter": np.ones((n_envs, deter), np.float16)}
        latent["stoch"] = np.ones((n_envs, stoch), np.uint8)
        for t in range(steps // n_envs):
            ended = np.full(n_envs, t % 500 == 499)
            next_obs = np.roll(obs, 1, axis=1)
            buffer.push_batch(obs, next_obs, none, floats, ended, none, **latent)
            obs = next_obs if not ended[0] else next_obs + np.uint8(1)
        view = sw.Sequence(length - 1, context=1, arrivals=True, cross=True)
        return partial(buffer.sample, 16, view=view, out=buffer.batch(16, view=view))

    def least() -> Operation:
        width = int(np.prod(image)) + 2 * deter + stoch + 8 + 4
        rows, out = np.ones((steps, width), np.uint8), np.empty((16, length, width), np.uint8)
        rng = np.random.default_rng(0)

        def copy() -> None:
            for i, begin in enumerate(rng.integers(0, steps - length, 16).tolist()):
                out[i] = rows[begin : begin + length]

        return copy

    return Row(
        "arrivals 16 x 65 of 64x64x3 with latents",
        {OURS: ours, FLOOR: least},
        [NearFloor(1.1)],
        note="the floor copies 16 runs of 65 records of the same size and looks for nothing",
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
