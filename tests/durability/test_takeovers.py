"""Folders that many want to begin, that are replaced, and that are copied: killed in between."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from sharpwave import EpisodeBuffer, FolderLockedError, MmapReplayBuffer, SharpwaveIOError
from tests.durability.crash import Progress
from tests.durability.episode_model import FIELDS, META, look, steps
from tests.durability.processes import preload, start

preload(__name__)


def make_episodes(folder: Path, overwrite: bool) -> EpisodeBuffer:
    return EpisodeBuffer(folder, 10, 60, FIELDS, META, overwrite=overwrite)


def make_replay(folder: Path, overwrite: bool) -> MmapReplayBuffer:
    return MmapReplayBuffer(10, 100, 300, 1, folder, overwrite=overwrite)


MAKERS = {"episodes": make_episodes, "replay": make_replay}


def fill(buffer: Any, number: int) -> None:
    """Some rows that tell the number."""
    if isinstance(buffer, EpisodeBuffer):
        buffer.store_episode(**steps([number] * 40), task=number)
    else:
        for _ in range(40):
            buffer.push([number] * 300, number, float(number), False, False, [number] * 300)


def numbers(buffer: Any) -> list[int]:
    """The numbers of the rows; those of a row are all the same."""
    if isinstance(buffer, EpisodeBuffer):
        return [number for episode in look(buffer) for number in episode[4]]
    content = buffer.gather(buffer.indices())
    assert (content["obs"] == content["rewards"][:, None]).all()
    return [int(reward) for reward in content["rewards"]]


def begin(kind: str, folder: Path, notes: Path, number: int) -> None:
    """Try to become the writer of a folder that is not there, when all others do."""
    ready, done = notes / f"ready {number}", notes / f"done {number}"
    ready.touch()
    while not (notes / "go").exists():
        pass
    try:
        buffer = MAKERS[kind](folder, overwrite=False)
    except FolderLockedError as error:
        done.write_text(f"locked by {error.owner}")
    except SharpwaveIOError as error:
        done.write_text(f"refused: {error}")
    else:
        fill(buffer, number)
        done.write_text("won")
        time.sleep(100)


@pytest.mark.parametrize("kind", MAKERS)
def test_of_all_that_begin_a_folder_at_once_one_writes(kind: str, memory_path: Path) -> None:
    folder = memory_path / "buffer"
    processes = [start(begin, kind, folder, memory_path, number) for number in range(4)]
    while len(list(memory_path.glob("ready *"))) < 4:
        time.sleep(0.001)
    (memory_path / "go").touch()
    told: list[str] = []
    while len(told) < 4 or not all(told):
        told = [path.read_text() for path in sorted(memory_path.glob("done *"))]
    assert told.count("won") == 1, told
    winner = told.index("won")
    for text in set(told) - {"won"}:
        owners = ("None", str(processes[winner].pid))
        assert text.startswith("refused") or text.removeprefix("locked by ") in owners, told
    with pytest.raises(FolderLockedError, match=f"process {processes[winner].pid} "):
        MAKERS[kind](folder, overwrite=True)
    for process in processes:
        process.kill()
        process.join()
    with open_again(kind, folder) as buffer:
        assert numbers(buffer) == [winner] * 40


def open_again(kind: str, folder: Path) -> Any:
    """The buffer in a folder, a new one if there is none."""
    if kind == "replay" and (folder / "header.json").exists():
        return MmapReplayBuffer.open(folder, verify=True)
    return MAKERS[kind](folder, overwrite=False)


def replace_again_and_again(kind: str, folder: Path, notes: Path) -> None:
    """Make a new buffer in the place of the last one, without end."""
    progress = Progress(notes)
    while True:
        buffer: Any = MAKERS[kind](folder, overwrite=True)
        fill(buffer, progress.completed + 1)
        progress.completed += 1
        if isinstance(buffer, EpisodeBuffer):
            buffer.close()
        else:
            buffer.close(delete=False)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("kills", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_a_kill_while_a_folder_is_replaced_leaves_the_old_or_the_new_content(
    kind: str, kills: int, memory_path: Path
) -> None:
    folder = memory_path / "buffer"
    progress = Progress(memory_path / "progress")
    for _ in range(kills):
        before = progress.completed
        process = start(replace_again_and_again, kind, folder, memory_path / "progress")
        while progress.completed < before + random.randrange(1, 4):
            time.sleep(0)
        time.sleep(random.random() * 0.003)
        process.kill()
        process.join()
        with open_again(kind, folder) as buffer:
            found = numbers(buffer)
        assert len(set(found)) <= 1
        assert len(found) <= 40
        assert set(found) <= {progress.completed, progress.completed + 1}


def save_again_and_again(folder: Path, notes: Path) -> None:
    """Push, and copy the folder, without end."""
    progress = Progress(notes)
    with make_replay(folder, overwrite=False) as buffer:
        while True:
            number = progress.completed + 1
            fill(buffer, number)
            buffer.save(folder.with_name(f"copy {number}"))
            progress.completed = number


@pytest.mark.parametrize("kills", [2, pytest.param(40, marks=pytest.mark.slow)])
def test_a_kill_while_a_folder_is_copied_leaves_whole_copies(kills: int, memory_path: Path) -> None:
    for kill in range(kills):
        work = memory_path / str(kill)
        work.mkdir()
        progress = Progress(work / "progress")
        process = start(save_again_and_again, work / "buffer", work / "progress")
        while progress.completed < 2:
            time.sleep(0)
        time.sleep(random.random() * 0.005)
        process.kill()
        process.join()
        copies = sorted(work.glob("copy *"))
        assert len(copies) in (progress.completed, progress.completed + 1)
        for path in copies:
            newest = int(path.name.removeprefix("copy "))
            with MmapReplayBuffer.open(path, verify=True) as buffer:
                found = numbers(buffer)
            assert found[-40:] == [newest] * 40
            assert len(found) == min(40 * newest, 100)
