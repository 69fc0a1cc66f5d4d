"""Writers killed while they write over columns: all rows of an update have it, or none."""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave import MmapReplayBuffer
from tests.durability.processes import preload, start

preload(__name__)

N_ENVS, STEPS, WIDTH = 4, 60, 700
FIELDS: dict[str, Any] = {
    "obs": "float32",
    "action": "int32",
    "reward": "float32",
    "terminated": "bool",
    "truncated": "bool",
    "deter": ("float32", (WIDTH,)),
    "number": "int64",
}


def make(folder: Path) -> None:
    """A folder whose columns are zero."""
    with MmapReplayBuffer(10, 1000, cold_path=folder, fields=FIELDS, n_envs=N_ENVS) as buffer:
        nothing = np.zeros(N_ENVS)
        for t in range(STEPS):
            buffer.push_batch(
                obs=nothing + t,
                next_obs=nothing + t + 1,
                actions=nothing,
                rewards=nothing,
                terminated=nothing,
                truncated=nothing,
                deter=np.zeros((N_ENVS, WIDTH)),
                number=nothing,
            )


def write_over(folder: Path) -> None:
    """Number all steps anew, without end; now and then everything gets its checksums."""
    buffer = MmapReplayBuffer.open(folder, continue_episodes=True)
    ids = buffer.indices()
    number = int(buffer.gather(ids[:1])["number"][0])
    while True:
        number += 1
        columns = {"deter": np.full((len(ids), WIDTH), number), "number": np.full(len(ids), number)}
        buffer.update(ids, **columns)
        if number % 7 == 0:
            buffer.flush()


def numbers(buffer: MmapReplayBuffer) -> set[float]:
    found = buffer.gather(buffer.indices())
    return {*found["number"].tolist(), *found["deter"].reshape(-1).tolist()}


@pytest.mark.long
@pytest.mark.parametrize("kills", [4, pytest.param(60, marks=pytest.mark.slow)])
def test_an_update_is_there_for_all_steps_or_for_none(kills: int, memory_path: Path) -> None:
    folder = memory_path / "a"
    make(folder)
    last = 0.0
    for _ in range(kills):
        writer = start(write_over, folder)
        with MmapReplayBuffer.open(folder, read_only=True) as reader:
            deadline = time.monotonic() + 60
            while numbers(reader) == {last} and time.monotonic() < deadline:
                time.sleep(0.001)
        time.sleep(random.random() * 0.02)
        writer.kill()
        writer.join()
        with MmapReplayBuffer.open(folder, verify=True) as buffer:
            found = numbers(buffer)
            assert len(found) == 1
            assert found.pop() > last
            last = float(buffer.gather(buffer.indices()[:1])["number"][0])
    with MmapReplayBuffer.open(folder, read_only=True, verify=True) as reader:
        assert numbers(reader) == {last}


def test_an_update_that_was_cut_off_is_ended_by_the_next_writer(memory_path: Path) -> None:
    folder = memory_path / "a"
    make(folder)
    with MmapReplayBuffer.open(folder) as buffer:
        ids = buffer.indices()
        buffer.update(ids, deter=np.full((len(ids), WIDTH), 5.0), number=np.full(len(ids), 5))
        journal = (folder / "update.journal").read_bytes()
    make(memory_path / "b")
    begun, done = struct.unpack_from("<QQ", journal, 8)
    assert begun == done == 1
    cut_off = journal[:16] + struct.pack("<Q", 0) + journal[24:]
    for bytes_left, expected in ((len(journal), 5.0), (len(journal) // 2, 0.0)):
        broken = cut_off[:bytes_left] + bytes(len(journal) - bytes_left)
        (memory_path / "b" / "update.journal").write_bytes(broken)
        with MmapReplayBuffer.open(memory_path / "b", verify=True) as buffer:
            assert numbers(buffer) == {expected}
        # What the power took is not written, and neither is what has ended again.
        with MmapReplayBuffer.open(memory_path / "b", verify=True) as buffer:
            assert numbers(buffer) == {expected}
            ids = buffer.indices()
            buffer.update(ids, deter=np.zeros((len(ids), WIDTH)), number=np.zeros(len(ids)))
