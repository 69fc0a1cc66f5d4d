"""DreamerV3 on a CPU: gradient steps and acting, beside what its definitions say."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from harness import OURS, AtMost, Operation, Ratio, Row
from plain_dreamer import as_defined

STEPS = 300
"""Environment steps before the batch is drawn that all gradient steps learn from."""


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
