"""DreamerV3 on a CPU: gradient steps, acting and batches, beside the least there is to do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from harness import FLOOR, OURS, AtMost, NearFloor, Operation, Ratio, Row
from plain_dreamer import as_defined

STEPS = 300
"""Environment steps before the batch is drawn that all gradient steps learn from."""
STORED, SEQUENCES, ROWS, IMAGE = 20_000, 16, 65, (64, 64, 3)
"""Steps of a buffer of images; sequences of a batch, and rows of each with the one before it."""
COLUMNS: dict[str, Any] = {"deter": ("float16", (2048,)), "stoch": ("uint8", (32,))}
"""Latent states of size12m."""


def rows() -> Iterator[Row]:
    yield Row(
        "gradient step of DreamerV3, tiny, CartPole-v1",
        {OURS: ours, "plain torch": plain},
        [Ratio("plain torch", 2.5)],
        clock=time.process_time,
        note="16 sequences of 16, one thread",
    )
    yield Row(
        "act of DreamerV3, tiny, in 16 environments",
        {OURS: acting},
        [AtMost(2e-3, "s")],
        clock=time.process_time,
    )
    yield Row(
        f"draw {SEQUENCES} x {ROWS} images with latents of size12m",
        {OURS: drawing, FLOOR: copying},
        [NearFloor(1.1)],
        clock=time.process_time,
        note=f"of {STORED} steps of 64 x 64 x 3; the floor copies as many steps as one array",
    )


def trained() -> Any:
    import torch

    import sharpwave as sw

    torch.set_num_threads(1)
    agent = sw.DreamerV3("CartPole-v1", seed=0)
    agent.train(STEPS)
    return agent


def ours() -> Operation:
    agent = trained()
    return partial(agent.learner.update, agent.loop.sample())


def plain() -> Operation:
    agent = trained()
    batch = agent.loop.sample()

    def step() -> None:
        with as_defined():
            agent.learner.update(batch)

    return step


def acting() -> Operation:
    actor = trained().player(16, deterministic=False)
    obs = np.zeros((16, 4), np.float32)
    return partial(actor.act, obs, np.zeros(16, np.bool_))


def drawing() -> Operation:
    from sharpwave import ReplayBuffer, Sequence

    fields = {"obs": ("uint8", IMAGE), "action": "int64", "reward": "float32"}
    fields |= {"terminated": "bool", "truncated": "bool", **COLUMNS}
    buffer = ReplayBuffer(STORED, fields=fields, n_envs=1)
    rng = np.random.default_rng(0)
    for t in range(STORED):
        images = [np.full(IMAGE, (t + i) % 256, np.uint8) for i in range(2)]
        deter = rng.normal(size=2048).astype(np.float16)
        buffer.push(images[0], 0, 1.0, False, False, images[1], deter=deter, stoch=np.zeros(32))
    view = Sequence(ROWS - 1, context=1, arrivals=True, cross=True)
    out = buffer.batch(SEQUENCES, view=view, indices=True)
    return partial(buffer.sample, SEQUENCES, view=view, indices=True, out=out)


def copying() -> Operation:
    size = int(np.prod(IMAGE)) + 2 * 2048 + 32
    steps = np.ones((STORED, size), np.uint8)
    batch = np.zeros((SEQUENCES, ROWS, size), np.uint8)
    rng = np.random.default_rng(0)

    def copy() -> None:
        for rows, first in zip(batch, rng.integers(0, STORED - ROWS, SEQUENCES), strict=True):
            rows[:] = steps[first : first + ROWS]

    return copy
