"""Processes that are killed while they write beside the place of a file or folder."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave import PPO, EpisodeBuffer, MmapReplayBuffer, SharpwaveIOError
from sharpwave.formats import read_episodes, write_episodes
from sharpwave.storage.files import replace_file, temporary_beside
from tests.durability.processes import killed_at


def make_file(folder: Path) -> Callable[[str], Any]:
    return lambda name: replace_file(folder / name, b"x" * 100_000)


def make_checkpoint(folder: Path) -> Callable[[str], Any]:
    algorithm = PPO("CartPole-v1", seed=1)
    return lambda name: algorithm.save(folder / f"{name}.safetensors")


def make_copy(folder: Path) -> Callable[[str], Any]:
    buffer = MmapReplayBuffer(10, 100, 3, 1, folder.parent / "source")
    buffer.push(np.ones(3), 1, 1.0, False, False, np.ones(3))
    buffer.close()

    def save(name: str) -> None:
        with MmapReplayBuffer.open(folder.parent / "source") as opened:
            opened.save(folder / name)

    return save


def make_conversion(folder: Path, kind: str) -> Callable[[str], Any]:
    source = folder.parent / "source"
    with EpisodeBuffer(source, 10, 50, {"state": ("float", 3), "action": "int"}) as buffer:
        buffer.store_episode(state=np.ones((4, 3)), action=np.arange(4))
    return lambda name: write_episodes(read_episodes(source), folder / name, kind)


MAKERS: dict[str, Callable[[Path], Callable[[str], Any]]] = {
    "a file": make_file,
    "a checkpoint": make_checkpoint,
    "a copy of a buffer": make_copy,
    "episodes": partial(make_conversion, kind="episodes"),
    "npz": partial(make_conversion, kind="npz"),
}


@pytest.mark.long(but=["a file"])
@pytest.mark.parametrize("kind", MAKERS)
def test_what_a_killed_writer_left_goes_with_the_next(kind: str, memory_path: Path) -> None:
    """A process killed in `save` left a temporary file of full size for ever."""
    folder = memory_path / "target"
    folder.mkdir()
    write = MAKERS[kind](folder)
    left, step, killed = 0, 0, True
    while killed:
        killed = killed_at(step, partial(write, f"killed {step}"))
        left += sum(path.name.endswith(".tmp") for path in folder.iterdir())
        step += 1
        write(f"next {step}")
        assert not [path for path in folder.iterdir() if path.name.endswith(".tmp")], step
        step += max(step // 4, 0)  # the first operations one by one, later ones less
    assert left > 0, "no kill left anything"


def test_what_is_being_written_is_left_alone(memory_path: Path) -> None:
    """Also by others in the same process, and whatever a user calls alike."""
    own = memory_path / ".notes.abcdefgh.tmp"
    own.write_text("mine")
    with temporary_beside(memory_path / "a") as file:
        with temporary_beside(memory_path / "b", folder=True) as folder:
            replace_file(memory_path / "c", "c")
            assert file.exists()
            assert folder.is_dir()
        child = os.fork()
        if child == 0:
            replace_file(memory_path / "d", "d")
            os._exit(0)
        os.waitpid(child, 0)
        assert file.exists()
    assert sorted(path.name for path in memory_path.iterdir()) == [own.name, "c", "d"]


def test_many_write_beside_each_other(memory_path: Path) -> None:
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for _ in range(60):
                replace_file(memory_path / f"{number % 2}", str(number))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert sorted(path.name for path in memory_path.iterdir()) == ["0", "1"]


def test_a_folder_that_is_opened_to_write_is_tidied(memory_path: Path) -> None:
    with EpisodeBuffer(memory_path / "a", 10, 50, {"x": "int"}) as buffer:
        buffer.store_episode(x=np.arange(4))
    left = memory_path / "a" / "columns" / ".x.000000000000.coded.sharpwave-abcdefgh.tmp"
    left.write_bytes(bytes(1000))
    EpisodeBuffer.from_folder(memory_path / "a", read_only=True).close()
    assert left.exists()
    with EpisodeBuffer.from_folder(memory_path / "a") as buffer:
        buffer.store_episode(x=np.arange(4))
    assert not left.exists()
    with pytest.raises(SharpwaveIOError):
        EpisodeBuffer.from_folder(memory_path / "b")
