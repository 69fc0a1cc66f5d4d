"""Recovery after a crash, and how writing goes on."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest

from sharpwave import EpisodeBuffer
from sharpwave.episodes import ABORTED
from tests.unit.episodes.episodes import crashed, make, rewards, store


def test_a_crash_inside_an_episode_keeps_its_steps_as_an_aborted_episode(tmp_path: Path) -> None:
    buffer = make(tmp_path)
    for length in (3, 5):
        with buffer.one_episode():
            store(buffer, length)
    with buffer.one_episode():
        store(buffer, 4)
        left = crashed(buffer, tmp_path / "left")
    again = EpisodeBuffer.from_folder(left)
    assert again.num_episodes == 2
    with again.one_episode():
        store(again, 2)
    assert again.num_episodes == 3
    assert rewards(again) == [[0, 1, 2], [0, 1, 2, 3, 4], [0, 1]]
    assert rewards(again, aborted=True)[2] == [0, 1, 2, 3]
    assert again.episodes(aborted=True).flags[2] == ABORTED


def test_steps_after_a_crash_never_join_the_episode_before_it(tmp_path: Path) -> None:
    buffer = make(tmp_path)
    buffer.store(reward=99)
    left = crashed(buffer, tmp_path / "left")
    again = EpisodeBuffer.from_folder(left)
    store(again, 3)
    again.advance_episode()
    assert rewards(again) == [[0, 1, 2]]


def test_a_crash_between_episodes_loses_and_marks_nothing(tmp_path: Path) -> None:
    buffer = make(tmp_path)
    with buffer.one_episode():
        store(buffer, 3)
    again = EpisodeBuffer.from_folder(crashed(buffer, tmp_path / "left"))
    again.flush()
    assert rewards(again, aborted=True) == [[0, 1, 2]]


def test_a_crash_before_the_first_step_leaves_nothing(tmp_path: Path) -> None:
    buffer = make(tmp_path)
    with buffer.one_episode():
        left = crashed(buffer, tmp_path / "left")
    again = EpisodeBuffer.from_folder(left)
    with again.one_episode():
        store(again, 1)
    assert rewards(again, aborted=True) == [[0]]


def test_a_crash_inside_a_batch_keeps_the_steps_of_every_episode(tmp_path: Path) -> None:
    buffer = make(tmp_path, meta_fields={"task": "int"})
    with contextlib.suppress(KeyError), buffer.batched_episode(3, task=[5, 6, 7]):
        for t in range(4):
            active = np.array([True, t < 2, False])
            buffer.store_batch(active, reward=np.full(3, t))
        left = crashed(buffer, tmp_path / "left")
        raise KeyError
    for found in (buffer, EpisodeBuffer.from_folder(left)):
        assert found.num_episodes == 0
        with found.one_episode():  # opens the copy for writing
            store(found, 1)
        table = found.episodes(aborted=True)
        assert rewards(found, aborted=True) == [[0, 1, 2, 3], [0, 1], [0]]
        assert table.meta["task"].tolist() == [5, 6, 0]


def test_an_aborted_episode_does_not_count_for_max_episodes(tmp_path: Path) -> None:
    buffer = make(tmp_path, max_episodes=2)
    for number in range(4):
        with contextlib.suppress(KeyError), buffer.one_episode():
            store(buffer, 2, number)
            if number % 2 == 0:
                raise KeyError
    assert buffer.num_episodes == 2
    assert len(buffer.episodes(aborted=True)) == 4


def test_a_block_without_steps_leaves_no_episode(tmp_path: Path) -> None:
    buffer = make(tmp_path)
    with buffer.one_episode():
        pass
    buffer.advance_episode()
    assert len(buffer.episodes(aborted=True)) == 0


@pytest.mark.parametrize("durability", ["process", "power"])
def test_closing_inside_an_episode_aborts_it(tmp_path: Path, durability: str) -> None:
    buffer = make(tmp_path, durability=durability)
    store(buffer, 3)
    buffer.close()
    again = make(tmp_path)
    assert again.num_episodes == 0
    assert rewards(again, aborted=True) == [[0, 1, 2]]


def test_circular_buffers_recover_with_the_same_episodes(tmp_path: Path) -> None:
    fields = {"state": ("float", (1000,)), "reward": "float"}
    buffer = make(tmp_path, fields=fields, circular=True, max_episodes=3, max_timesteps=100)
    for number in range(20):
        with buffer.one_episode():
            for t in range(40):
                buffer.store(state=number, reward=t)
        if number % 6 == 5:
            buffer.flush()  # no file goes away while the folder is copied
            again = EpisodeBuffer.from_folder(crashed(buffer, tmp_path / f"left {number}"))
            again.flush()
            with again.one_episode():
                again.store(state=-1.0)
            table = again.episodes()
            assert table.ids.tolist() == [number - 1, number, number + 1]
            assert again.gather(table.starts)["state"][:, 0].tolist() == [number - 1, number, -1]
    files = list((buffer.folder / "columns").glob("state.*"))
    buffer.flush()
    assert len(files) <= 10  # old chunks are gone
