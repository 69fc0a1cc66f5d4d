"""Uniform replay: pushing one row or many, sampling from a million rows, images."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import data
import floor
import numpy as np
import peers
from data import ACT_DIM, MILLION, OBS_DIM, Transitions
from harness import FLOOR, OURS, Operation, Ratio, Row

IMAGE_ROWS = 5_000
RLOX_IMAGE_ROWS = 1_000
PUSH_CAPACITY = 100_000


def rows() -> Iterator[Row]:
    yield from pushes()
    yield from samples()
    yield from image_rows()


def pushes() -> Iterator[Row]:
    stored = data.transitions(PUSH_CAPACITY)
    step = peers.one(stored)
    packed = peers.records(stored)

    def ours() -> Operation:
        import sharpwave as sw

        return partial(sw.ReplayBuffer(PUSH_CAPACITY, OBS_DIM, ACT_DIM).push, *step)

    def rlox() -> Operation:
        import rlox as library

        return partial(library.ReplayBuffer(PUSH_CAPACITY, OBS_DIM, ACT_DIM).push, *step)

    def sb3() -> Operation:
        first = next(peers.chunks(stored, 1))
        return partial(peers.sb3(PUSH_CAPACITY).add, *peers.sb3_arguments(first))

    def cpprb() -> Operation:
        first = next(peers.chunks(stored, 1))
        return partial(peers.cpprb(PUSH_CAPACITY).add, **peers.cpprb_arguments(first))

    def tianshou() -> Operation:
        from tianshou.data import ReplayBuffer

        return partial(ReplayBuffer(PUSH_CAPACITY).add, peers.tianshou_step(stored))

    yield Row(
        "push one",
        {
            OURS: ours,
            "rlox": rlox,
            "SB3": sb3,
            "cpprb": cpprb,
            "tianshou": tianshou,
            "numpy": lambda: partial(peers.NumpyColumns(stored).push, *step),
            FLOOR: lambda: partial(floor.load().push, packed, *step),
        },
        [Ratio("rlox", 3.0)],
    )
    yield Row(
        "call with the arguments of push",
        {FLOOR: lambda: partial(floor.load().call, *step)},
        note="what Python asks for before any work is done",
    )
    yield batch_pushes(stored, packed, 8, Ratio("rlox", 3.0))
    yield batch_pushes(stored, packed, 64, Ratio("best", 2.0))
    yield batch_pushes(stored, packed, 1024, Ratio("numpy", 1.0))


def batch_pushes(stored: Transitions, packed: object, n: int, target: Ratio) -> Row:
    batch = next(peers.chunks(stored, n))

    def ours() -> Operation:
        import sharpwave as sw

        buffer = sw.ReplayBuffer(PUSH_CAPACITY, OBS_DIM, ACT_DIM)
        return partial(buffer.push_batch, *batch.columns())

    def rlox() -> Operation:
        import rlox as library

        buffer = library.ReplayBuffer(PUSH_CAPACITY, OBS_DIM, ACT_DIM)
        return partial(buffer.push_batch, *batch.flat())

    def sb3() -> Operation:
        return partial(peers.sb3(PUSH_CAPACITY, n_envs=n).add, *peers.sb3_arguments(batch))

    return Row(
        f"push batch of {n}",
        {
            OURS: ours,
            "rlox": rlox,
            "SB3": sb3,
            "cpprb": lambda: partial(
                peers.cpprb(PUSH_CAPACITY).add, **peers.cpprb_arguments(batch)
            ),
            "numpy": lambda: partial(peers.NumpyColumns(stored).push_batch, *batch.columns()),
            FLOOR: lambda: partial(floor.load().push_batch, packed, *batch.flat()),
        },
        [target],
    )


def samples() -> Iterator[Row]:
    buffers = peers.Uniform(data.transitions(MILLION))
    yield sample(buffers, 32, Ratio("rlox", 2.0))
    yield sample(buffers, 256, Ratio("best", 2.5))
    yield sample(buffers, 1024, Ratio("best", 2.5))
    yield sample(buffers, 8192, Ratio("best", 2.0))
    yield sample_tensors(buffers, 32, Ratio("rlox", 5.0))
    yield sample_tensors(buffers, 256)


def sample(buffers: peers.Uniform, n: int, target: Ratio) -> Row:
    return Row(
        f"sample {n} of 1M",
        {
            OURS: lambda: partial(buffers.ours.sample, n),
            "rlox": lambda: peers.seeded(buffers.rlox.sample, n),
            "SB3": lambda: partial(buffers.sb3.sample, n),
            "cpprb": lambda: partial(buffers.cpprb.sample, n),
            "tianshou": lambda: partial(buffers.tianshou.sample, n),
            "numpy": lambda: partial(buffers.numpy.sample, n),
            FLOOR: lambda: partial(floor.load().sample, buffers.records, n),
        },
        [target],
    )


def sample_tensors(buffers: peers.Uniform, n: int, *targets: Ratio) -> Row:
    def ours() -> Operation:
        sample = buffers.ours.sample
        batch = buffers.ours.batch(n, torch=True)
        return lambda: sample(n, out=batch)

    def rlox() -> Operation:
        from torch import from_numpy

        sample = peers.seeded(buffers.rlox.sample, n)
        return lambda: {name: from_numpy(column) for name, column in sample().items()}

    return Row(
        f"sample {n} of 1M as torch tensors",
        {OURS: ours, "rlox": rlox, "SB3": lambda: partial(buffers.sb3.sample, n)},
        targets,
        note="ours fills a reused batch of tensors; rlox: sample, then six from_numpy",
    )


def image_rows() -> Iterator[Row]:
    stored = data.images(IMAGE_ROWS)
    step = peers.one(stored)
    obs, action, reward, *_, next_obs = step

    @cache
    def ours() -> Any:
        import sharpwave as sw

        buffer = sw.ReplayBuffer(IMAGE_ROWS, fields=peers.IMAGE_FIELDS)
        return peers.fill(buffer, peers.chunks(stored, 500))

    @cache
    def rlox() -> Any:
        import rlox as library

        buffer = library.ReplayBuffer(RLOX_IMAGE_ROWS, obs.size, 1)
        for chunk in peers.chunks(stored, 100):
            *pixels_and_actions, rewards, terminated, truncated = chunk.flat()
            floats = (column.astype(np.float32) for column in pixels_and_actions)
            buffer.push_batch(*floats, rewards, terminated, truncated)
        return buffer

    def rlox_push() -> Operation:
        push = rlox().push

        def convert_and_push() -> None:
            push(
                obs.astype(np.float32).reshape(-1),
                np.array([action], np.float32),
                reward,
                False,
                False,
                next_obs.astype(np.float32).reshape(-1),
            )

        return convert_and_push

    @cache
    def sb3() -> Any:
        return peers.sb3(IMAGE_ROWS, stored)

    def sb3_push() -> Operation:
        return partial(sb3().add, *peers.sb3_arguments(next(peers.chunks(stored, 1))))

    columns = peers.NumpyColumns(stored)
    pixels = columns.columns[:2]
    yield Row(
        "push one, 84x84x4 uint8",
        {
            OURS: lambda: partial(ours().push, *step),
            "rlox": rlox_push,
            "SB3": sb3_push,
            "numpy": lambda: partial(columns.push, *step),
            FLOOR: lambda: partial(floor.load().push_images, *pixels, obs, next_obs),
        },
        [Ratio("numpy", 1.0), Ratio("rlox", 20.0)],
        note="rlox stores float32 only, so its time holds the conversion",
    )
    yield Row(
        "sample 256 images, 84x84x4 uint8",
        {
            OURS: lambda: partial(ours().sample, 256),
            "rlox": lambda: peers.seeded(rlox().sample, 256),
            "SB3": lambda: partial(sb3().sample, 256),
            "numpy": lambda: partial(columns.sample, 256),
            FLOOR: lambda: partial(floor.load().sample_images, *pixels, 256),
        },
        [Ratio("numpy", 1.0)],
        note=f"of {IMAGE_ROWS} rows; rlox holds {RLOX_IMAGE_ROWS} rows of float32",
    )
