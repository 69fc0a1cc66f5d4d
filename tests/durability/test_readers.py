"""Readers in other processes, beside a writer that never stops: every row they get is whole."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave import EpisodeBuffer, MmapReplayBuffer
from tests.durability.crash import Progress
from tests.durability.processes import preload, start
from tests.reference.nests import Array

preload(__name__)

LENGTHS = (1, 7, 40, 100)
FIELDS = {"number": "int64", "frame": ("int64", 50), "check": "uint64"}


def check_of(number: Any) -> Any:
    """A value that follows from a number, and from no other."""
    return np.asarray(number).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def rows(numbers: Any) -> dict[str, Array]:
    number = np.asarray(numbers, np.int64)
    frame = np.repeat(number[..., None], 50, axis=-1)
    return {"number": number, "frame": frame, "check": check_of(number)}


def write_episodes(buffer: EpisodeBuffer) -> Iterator[None]:
    """An episode after the other, in all ways there are; its rows have consecutive numbers."""
    for i in count():
        first, length = i * 1000, LENGTHS[i % len(LENGTHS)]
        if i % 3 == 0:
            buffer.store_episode(**rows(range(first, first + length)), first=first)
        elif i % 3 == 1:
            with buffer.one_episode(first=first):
                for number in range(first, first + length):
                    buffer.store(**rows(number))
        else:
            with buffer.batched_episode(2, first=[first, first + 500]):
                for t in range(length):
                    active = np.array([True, t % 2 == 0])
                    buffer.store_batch(active, **rows([first + t, first + 500 + t // 2]))
        yield


def read_episodes(folder: Path, notes: Path, n_rows: int, seed: int) -> None:
    """Draw rows of random episodes and look at them, until there were enough."""
    progress = Progress(notes)
    rng = np.random.default_rng(seed)
    try:
        reader = EpisodeBuffer.from_folder(folder, read_only=True)
        newest = 0
        while progress.completed < n_rows:
            table = reader.episodes()
            if len(table) == 0:
                continue
            assert table.ids[-1] >= newest
            newest = int(table.ids[-1])
            drawn = rng.integers(len(table), size=256)
            steps = rng.integers(table.lengths[drawn])
            try:
                batch = reader.gather(table.starts[drawn] + steps)
            except IndexError:  # the oldest have gone
                continue
            expected = rows(table.meta["first"][drawn] + steps)
            for name, values in expected.items():
                np.testing.assert_array_equal(batch[name], values, err_msg=name)
            progress.completed += len(drawn)
    except BaseException:
        notes.with_suffix(".error").write_text(traceback.format_exc())
        raise


def read_beside(
    writing: Iterator[None], read: Callable[..., None], folder: Path, n_rows: int
) -> None:
    """Two readers beside a writer."""
    notes = [folder.with_name(f"reader {i}") for i in range(2)]
    readers = [start(read, folder, path, n_rows // 2, i) for i, path in enumerate(notes)]
    while any(reader.is_alive() for reader in readers):
        for _ in range(50):
            next(writing)
        time.sleep(0.0005)  # so that readers come to something on a machine with few processors
    for reader, path in zip(readers, notes, strict=True):
        error = path.with_suffix(".error")
        assert reader.exitcode == 0, error.read_text() if error.exists() else reader.exitcode


@pytest.mark.long
@pytest.mark.parametrize("n_rows", [200_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("codecs", [None, "lz4"])
def test_rows_of_episodes_are_whole_beside_a_writer(
    n_rows: int, codecs: str | None, memory_path: Path
) -> None:
    folder = memory_path / "episodes"
    circular = EpisodeBuffer(
        folder, 60, 100, FIELDS, {"first": "int64"}, circular=True, codecs=codecs
    )
    writing = write_episodes(circular)
    while len(circular.episodes()) < 60 or circular.episodes().ids[0] == 0:
        next(writing)  # until the oldest go
    first = circular.episodes().ids[0]
    read_beside(writing, read_episodes, folder, n_rows)
    assert circular.episodes().ids[0] > first


@pytest.mark.long
@pytest.mark.parametrize("n_rows", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_rows_of_a_growing_folder_are_whole_beside_a_writer(n_rows: int, memory_path: Path) -> None:
    folder = memory_path / "episodes"
    growing = EpisodeBuffer(folder, 10**7, 100, FIELDS, {"first": "int64"})
    read_beside(write_episodes(growing), read_episodes, folder, n_rows)


def write_replay(buffer: MmapReplayBuffer) -> Iterator[None]:
    """Steps with consecutive numbers, and priorities for those that were drawn."""
    for number in count():
        obs = np.full(200, number)
        buffer.push(obs, number % 100, float(number), False, False, obs + 1, priority=1.0)
        if number % 16 == 15:
            batch = buffer.sample(8)
            buffer.update_priorities(batch["indices"], batch["rewards"] % 7 + 0.5)
        if number % 20_000 == 19_999:
            buffer.clear()
        yield


def read_replay(folder: Path, notes: Path, n_rows: int, seed: int) -> None:
    """Draw batches and look at them, until there were enough."""
    progress = Progress(notes)
    try:
        reader = MmapReplayBuffer.open(folder, read_only=True)
        while progress.completed < n_rows:
            try:
                batch: dict[str, Any] = reader.sample(64)
            except ValueError:  # there are fewer
                continue
            numbers = batch["rewards"]
            assert (batch["obs"] == numbers[:, None]).all()
            assert (batch["next_obs"] == numbers[:, None] + 1).all()
            assert (batch["actions"] == numbers % 100).all()
            assert (batch["indices"] == numbers).all()
            assert ((batch["weights"] > 0) & (batch["weights"] <= 1)).all()
            progress.completed += 64
    except BaseException:
        notes.with_suffix(".error").write_text(traceback.format_exc())
        raise


@pytest.mark.parametrize("n_rows", [200_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_rows_drawn_by_priority_are_whole_beside_a_writer(n_rows: int, memory_path: Path) -> None:
    folder = memory_path / "replay"
    buffer = MmapReplayBuffer(50, 500, 200, 1, folder, prioritized=True)
    writing = write_replay(buffer)
    for _ in range(600):  # until the oldest go
        next(writing)
    first = buffer.indices()[0]
    read_beside(writing, read_replay, folder, n_rows)
    assert buffer.indices()[0] > first
