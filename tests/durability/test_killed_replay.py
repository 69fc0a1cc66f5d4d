"""Writers of replay buffers that are killed at any moment lose at most the step in flight."""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from sharpwave import MmapReplayBuffer
from tests.durability.crash import CLOSING, OPENING, Crashes
from tests.durability.processes import preload, start
from tests.durability.replay_model import Kind
from tests.durability.replay_script import Replay

preload(__name__)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "folders"),
    [
        (Kind("flat", prioritized=True), 1),
        (Kind("frames", n_envs=2, prioritized=True), 1),
        *[
            pytest.param(kind, 4, marks=pytest.mark.slow)
            for kind in (
                Kind("flat", prioritized=True),
                Kind("flat", n_envs=2),
                Kind("flat", n_envs=1, prioritized=True, durability="power"),
                Kind("frames", n_envs=2, prioritized=True),
                Kind("frames", n_envs=3, continues=False),
            )
        ],
    ],
    ids=str,
)
def test_a_writer_killed_again_and_again_leaves_exactly_what_it_committed(
    kind: Kind, folders: int, memory_path: Path
) -> None:
    for number in range(folders):
        seed = int.from_bytes(os.urandom(4), "little")
        crashes = Crashes(Replay(kind), memory_path / str(number), seed)
        for _ in range(3 if folders == 1 else 12):
            crashes.round()
        crashes.round(OPENING)
        crashes.round(CLOSING, most=20)
        assert crashes.kills >= 3


def push_batches(folder: Path, n_envs: int) -> None:
    """Push a step of every environment at a time, without end."""
    buffer = MmapReplayBuffer.open(folder, continue_episodes=True)
    step = 0
    while True:
        obs = np.full((n_envs, 40), step)
        buffer.push_batch(obs, obs + 1, obs[:, :1], obs[:, 0], obs[:, 0] < 0, obs[:, 0] < 0)
        step += 1


@pytest.mark.parametrize("kills", [5, pytest.param(100, marks=pytest.mark.slow)])
def test_a_killed_batch_is_there_for_all_environments_or_for_none(
    kills: int, memory_path: Path
) -> None:
    """A killed `push_batch` left steps of some environments, while `pushed` counted all."""
    n_envs, before = 16, 0
    MmapReplayBuffer(10, 4096, 40, 1, memory_path / "a", n_envs=n_envs).close(delete=False)
    for _ in range(kills):
        writer = start(push_batches, memory_path / "a", n_envs)
        reader = MmapReplayBuffer.open(memory_path / "a", read_only=True)
        while reader._engine.counters()[0] == before:
            reader.close()
            reader = MmapReplayBuffer.open(memory_path / "a", read_only=True)
        time.sleep(random.random() * 0.01)
        writer.kill()
        writer.join()
        for read_only in (True, False):
            with MmapReplayBuffer.open(memory_path / "a", read_only=read_only) as buffer:
                newest = [head[1] for head in buffer._engine.heads()]
                assert len(set(newest)) == 1, newest
                pushed = buffer.stats()["pushed"]
                assert pushed % n_envs == 0
                assert pushed > before
        before = pushed


def test_a_commit_that_was_cut_off_is_ended_by_whoever_comes(memory_path: Path) -> None:
    """The words say which changes a commit makes before it makes the first of them."""
    n_envs, log = 4, 9 + 2 * 4
    with MmapReplayBuffer(10, 400, 40, 1, memory_path / "a", n_envs=n_envs) as buffer:
        for step in range(3):
            obs = np.full((n_envs, 40), step)
            buffer.push_batch(obs, obs + 1, obs[:, :1], obs[:, 0], obs[:, 0] < 0, obs[:, 0] < 0)
            if step == 1:
                old = np.fromfile(memory_path / "a" / "state", np.uint64, 64)
        shutil.copytree(memory_path / "a", memory_path / "killed")
        expected = buffer.gather(buffer.indices())["obs"]
    state = memory_path / "killed" / "state"
    for changed in range(n_envs + 2):
        words = np.fromfile(state, np.uint64)
        assert words[8 + log] == 6, "three batches began and ended"
        words[8 + log] = 5
        changes = words[8 + log + 2 :][: 2 * (n_envs + 1) : 2].astype(int)
        words[8 + changes[changed:]] = old[8 + changes[changed:]]  # not made yet
        words.tofile(state)
        for read_only in (True, False):
            shutil.copytree(memory_path / "killed", memory_path / "copy")
            with MmapReplayBuffer.open(memory_path / "copy", read_only=read_only) as found:
                assert found.stats()["pushed"] == 3 * n_envs
                np.testing.assert_array_equal(found.gather(found.indices())["obs"], expected)
            shutil.rmtree(memory_path / "copy")
        words[8 + log] = 6
        words.tofile(state)
