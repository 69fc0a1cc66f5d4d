"""Learners whose actors are threads or processes of theirs, killed at any moment and resumed."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.runs.recorder import RunRecorder
from sharpwave.storage.run_folder import RunFolder
from tests.contract.fleets import OPTIONS
from tests.durability.processes import preload, start
from tests.durability.runs import Slowly, rows_of, wait_for_rows

STEPS = 2 * OPTIONS["n_envs"] * OPTIONS["n_steps"]
"""Of an update."""
SAVED = 4 * STEPS


def make(kind: str, folder: Path) -> Any:
    latest = RunFolder(folder).latest_checkpoint
    if latest.exists():
        return sw.IMPALA.from_checkpoint(latest)
    return sw.IMPALA("CartPole-v1", actors=kind, deterministic=True, **OPTIONS)


def go_on(kind: str, folder: Path, total: int) -> None:
    """Begin a run, or go on with it, to its end; it is saved at every fourth update."""
    agent = make(kind, folder)
    left = total if agent.timesteps == 0 else None
    often = RunRecorder(folder, checkpoint_freq=SAVED, report=False, resume=True)
    agent.train(left, callbacks=[Slowly(), often])
    agent.close()


preload("sharpwave.nn", "sharpwave.pages.report", "matplotlib.pyplot", __name__)


def kill_at_random(kind: str, folder: Path, n_kills: int, draw: random.Random) -> None:
    """No unroll is learned from twice, or the weights would differ from those of one run."""
    total = STEPS * 10 * (n_kills + 2)
    go_on(kind, folder / "whole", total)
    for _ in range(n_kills):
        process = start(go_on, kind, folder / "killed", total)
        wait_for_rows(folder / "killed", draw.randint(4, 8), process)
        time.sleep(draw.uniform(0, 0.02))
        process.kill()
        process.join()
    go_on(kind, folder / "killed", total)
    whole, killed = (folder / name for name in ("whole", "killed"))
    assert rows_of(killed)[-1]["step"] == total
    weights = [make(kind, one).learner.weights() for one in (whole, killed)]
    np.testing.assert_array_equal(*weights)
    told = [[(row["step"], row["loss"]) for row in rows_of(one)] for one in (whole, killed)]
    assert told[0] == told[1]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_a_killed_learner_is_resumed_bit_for_bit(kind: str, tmp_path: Path) -> None:
    kill_at_random(kind, tmp_path, 3, random.Random(8))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_learners_are_killed_at_fifty_moments(kind: str, tmp_path: Path) -> None:
    kill_at_random(kind, tmp_path, 50, random.Random(9))
