"""Copies of folders with holes for zeros (`cp --sparse`), on a disk without room to fill them."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave import EpisodeBuffer, MmapReplayBuffer, SharpwaveIOError
from tests.durability.forging import survives

PAGE = 4096


@pytest.fixture
def disk(mount: Callable[..., Path]) -> Path:
    return mount("disk", "-t", "tmpfs", "-o", "size=12m", "tmpfs")


def copy_sparsely(source: Path, target: Path) -> None:
    """Copy a folder without its pages of zeros."""
    for path in sorted(source.rglob("*")):
        made = target / path.relative_to(source)
        made.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            made.mkdir(exist_ok=True)
            continue
        data = path.read_bytes()
        with made.open("wb") as file:
            for start in range(0, len(data), PAGE):
                page = data[start : start + PAGE]
                if page.strip(b"\0"):
                    file.seek(start)
                    file.write(page)
            file.truncate(len(data))


@contextlib.contextmanager
def full(disk: Path) -> Iterator[None]:
    """Take all the room that is left."""
    filler = disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(PAGE)):
            pass
    yield
    filler.unlink()


def make_episodes(folder: Path) -> None:
    with EpisodeBuffer(folder, 10, 400, {"x": ("float", 256)}, {"task": ("int", 2000)}) as buffer:
        for _ in range(2):
            buffer.store_episode(x=np.zeros((300, 256)), task=np.zeros(2000))


def make_replay(folder: Path, n_envs: int | None) -> None:
    options: Any = {"prioritized": True, "n_envs": n_envs}
    with MmapReplayBuffer(10, 20_000, 64, 1, folder, **options) as buffer:
        rows = np.zeros((3000, 64))
        buffer.push_batch(rows, rows, rows[:, :1], rows[:, 0], rows[:, 0] > 0, rows[:, 0] > 0)


def use_episodes(folder: Path, read_only: bool) -> None:
    with EpisodeBuffer.from_folder(folder, read_only=read_only) as buffer:
        buffer.get_all_data(as_numpy=True)
        if not read_only:
            buffer.update(x=np.ones((2, 300, 256)), task=np.ones((2, 2000)))
            buffer.store_episode(x=np.ones((300, 256)), task=np.ones(2000))


def use_replay(folder: Path, read_only: bool) -> None:
    with MmapReplayBuffer.open(folder, read_only=read_only) as buffer:
        ids = buffer.indices()
        buffer.gather(ids)
        if not read_only:
            buffer.update_priorities(ids, np.ones(len(ids)))
            rows = np.ones((3000, 64))
            buffer.push_batch(rows, rows, rows[:, :1], rows[:, 0], rows[:, 0] < 0, rows[:, 0] < 0)


@pytest.mark.long(but=["episodes-False"])
@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("kind", ["episodes", "replay", "streams"])
def test_a_sparse_copy_on_a_full_disk_is_an_error_and_no_signal(
    kind: str, read_only: bool, disk: Path, tmp_path: Path
) -> None:
    """Opening, pushing, updating and `update_priorities` died with SIGBUS."""
    sound, notes = tmp_path / "sound", tmp_path / "notes"
    if kind == "episodes":
        make_episodes(sound)
    else:
        make_replay(sound, 2 if kind == "streams" else None)
    copy_sparsely(sound, disk / "copy")
    used = sum(path.stat().st_blocks * 512 for path in (disk / "copy").rglob("*"))
    assert used < sum(path.stat().st_size for path in sound.rglob("*")) / 2
    use = use_episodes if kind == "episodes" else use_replay
    notes.write_text("")

    def work() -> None:
        with full(disk), pytest.raises(SharpwaveIOError) as caught:
            use(disk / "copy", read_only)
        assert str(disk / "copy") in str(caught.value)
        assert "No space left" in str(caught.value) or "no room" in str(caught.value)
        use(disk / "copy", read_only)  # when there is room it goes on

    survives(work, notes)
    shutil.rmtree(disk / "copy")
