"""Replay in a folder refuses bad arguments and damage, and touches nothing that is not its own."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave import FolderLockedError, MmapReplayBuffer, SharpwaveIOError
from sharpwave.storage.folder import StoreFolder
from tests.reference.mapped import CAPACITY, WIDE_WITH_NEXT, fill, push
from tests.reference.nests import assert_same

ROW = ([1] * 3, 1, 1.0, False, False, [1] * 3)


def small(path: Path, n: int = 0, **options: Any) -> MmapReplayBuffer:
    buffer = MmapReplayBuffer(10, 100, 3, 1, path, **options)
    for i in range(n):
        buffer.push([i] * 3, i, float(i), False, False, [i + 1] * 3)
    return buffer


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"hot_capacity": 0}, ValueError, "hot_capacity must be at least 1"),
        ({"hot_capacity": 101}, ValueError, "hot_capacity must be at most total_capacity, 100"),
        ({"hot_capacity": 1.5}, TypeError, "hot_capacity must be an integer"),
        ({"total_capacity": -1}, ValueError, "total_capacity must be at least 1"),
        ({"obs_dim": 0}, ValueError, "obs_dim"),
        ({"act_dim": None}, TypeError, "act_dim"),
        ({"fields": WIDE_WITH_NEXT}, TypeError, "fields"),
        ({"cold_path": None}, TypeError, "cold_path must be given"),
        ({"cold_path": 3}, TypeError, "path must be a string"),
        ({"cold_path": ""}, ValueError, "path must not be empty"),
        ({"seed": -1}, ValueError, "seed"),
        ({"n_envs": 0}, ValueError, "n_envs"),
        ({"durability": "fsync"}, ValueError, "durability must be"),
        ({"resident_bytes": 0}, ValueError, "resident_bytes must be at least 1"),
        ({"prioritized": 0.6}, TypeError, "prioritized must be"),
        ({"prioritized": {"alpha": -1}}, ValueError, "alpha"),
        ({"prioritized": {"beta": float("nan")}}, ValueError, "beta"),
        ({"prioritized": {"kind": "best"}}, ValueError, "kind"),
        ({"prioritized": {"gamma": 1}}, TypeError, "gamma"),
        ({"total_capacity": 10**17}, MemoryError, "capacity"),
    ],
)
def test_bad_arguments_are_named_and_leave_no_folder(
    change: dict[str, Any], error: type[Exception], match: str, memory_path: Path
) -> None:
    path = memory_path / "a"
    good = {"hot_capacity": 10, "total_capacity": 100, "obs_dim": 3, "act_dim": 1}
    with pytest.raises(error, match=match):
        MmapReplayBuffer(**{**good, "cold_path": path, **change})
    assert not path.exists()


def test_a_refused_push_changes_nothing(memory_path: Path) -> None:
    buffer = small(memory_path / "a", 5)
    pushes: list[Any] = [
        lambda: buffer.push([1] * 2, 1, 1.0, False, False, [1] * 3),
        lambda: buffer.push([1] * 3, 1, np.nan, False, False, [1] * 3),
        lambda: buffer.push(*ROW, priority=1.0),
        lambda: buffer.push(*ROW[:5]),
        lambda: buffer.push_batch(*[np.zeros(3)] * 2, *[np.zeros(2)] * 4),
    ]
    for bad in pushes:
        with pytest.raises((TypeError, ValueError)):
            bad()
    buffer.close(delete=False)
    assert len(MmapReplayBuffer.open(memory_path / "a")) == 5


def test_a_file_in_the_way_is_never_touched(memory_path: Path) -> None:
    precious = memory_path / "precious"
    precious.write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(SharpwaveIOError, match="is a file"):
            small(precious, overwrite=overwrite)
        with pytest.raises(SharpwaveIOError, match="precious"):
            small(precious / "a", overwrite=overwrite)
    with pytest.raises(SharpwaveIOError):
        MmapReplayBuffer.open(precious)
    assert precious.read_text() == "mine"


def test_a_foreign_folder_is_never_touched(memory_path: Path) -> None:
    foreign = memory_path / "foreign"
    (foreign / "columns").mkdir(parents=True)
    (foreign / "columns" / "photo.jpg").write_text("mine")
    (foreign / "thesis.txt").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(SharpwaveIOError, match="something else"):
            small(foreign, overwrite=overwrite)
    with pytest.raises(SharpwaveIOError, match="holds no store"):
        MmapReplayBuffer.open(foreign)
    assert (foreign / "columns" / "photo.jpg").read_text() == "mine"
    assert sorted(p.name for p in foreign.iterdir()) == ["columns", "thesis.txt"]


def test_an_existing_buffer_is_opened_or_overwritten_only_when_asked_for(memory_path: Path) -> None:
    small(memory_path / "a", 5).close(delete=False)
    with pytest.raises(SharpwaveIOError, match=r"open.*overwrite=True") as caught:
        small(memory_path / "a")
    assert caught.value.errno == errno.EEXIST
    assert len(MmapReplayBuffer.open(memory_path / "a")) == 5
    fresh = small(memory_path / "a", overwrite=True)
    assert len(fresh) == 0
    fresh.push(*ROW)
    assert len(fresh) == 1


@pytest.mark.long
def test_the_second_writer_is_refused_and_the_first_is_named(memory_path: Path) -> None:
    first = small(memory_path / "a", 5)
    for second in (small, MmapReplayBuffer.open):
        with pytest.raises(SharpwaveIOError):
            second(memory_path / "a")
    with pytest.raises(FolderLockedError, match="this process"):
        MmapReplayBuffer.open(memory_path / "a")
    script = (
        "import sys; from sharpwave import *\n"
        "try: MmapReplayBuffer.open(sys.argv[1])\n"
        "except FolderLockedError as error: print(error.owner)"
    )
    assert run(script, str(memory_path / "a")).stdout.strip() == str(os.getpid())
    first.close(delete=False)
    assert len(MmapReplayBuffer.open(memory_path / "a")) == 5


@pytest.mark.long
def test_a_killed_writer_does_not_leave_the_lock(memory_path: Path) -> None:
    script = (
        "import sys, os, signal; from sharpwave import *\n"
        "b = MmapReplayBuffer(1, 9, 3, 1, sys.argv[1])\n"
        "for i in range(5): b.push([i] * 3, i, i, False, False, [i] * 3)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert run(script, str(memory_path / "a")).returncode == -signal.SIGKILL
    assert len(MmapReplayBuffer.open(memory_path / "a")) == 5


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def test_a_folder_of_another_kind_is_refused(memory_path: Path) -> None:
    StoreFolder.create(memory_path / "a", "episodes", {}, 4).unlock()
    with pytest.raises(SharpwaveIOError, match="episodes"):
        MmapReplayBuffer.open(memory_path / "a")


def test_a_missing_folder_is_named(memory_path: Path) -> None:
    with pytest.raises(SharpwaveIOError, match="nowhere"):
        MmapReplayBuffer.open(memory_path / "nowhere")
    assert not (memory_path / "nowhere").exists()


def test_a_header_that_nobody_wrote_is_refused(memory_path: Path) -> None:
    buffer = small(memory_path / "a", 5)
    buffer.close(delete=False)
    header = memory_path / "a" / "header.json"
    good = header.read_text()
    for name in ("schema", "options", "columns"):
        changed = json.loads(good)
        changed[name] = {}
        header.write_text(json.dumps(changed))
        with pytest.raises(SharpwaveIOError, match="header"):
            MmapReplayBuffer.open(memory_path / "a")
    header.write_text(good)
    assert len(MmapReplayBuffer.open(memory_path / "a")) == 5


def damaged(path: Path) -> tuple[Path, list[Path]]:
    """A closed buffer, and its chunk files with steps from old to new."""
    buffer, _ = fill("rows", path)
    rows = buffer._folder.header["columns"][0]["chunk_rows"]
    chunks = range(int(buffer.indices()[0]) // rows, int(buffer.indices()[-1]) // rows + 1)
    buffer.close(delete=False)
    return path, [path / "columns" / f"rows-0.{chunk:012}" for chunk in chunks]


def flip(file: Path, at: int = 100) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 0xFF
    file.write_bytes(content)


@pytest.mark.long(but=["missing-0"])
@pytest.mark.parametrize("which", [0, 1, -1])
@pytest.mark.parametrize("damage", ["missing", "truncated", "corrupt"])
def test_a_damaged_chunk_is_named_and_left_out_by_repair(
    damage: str, which: int, memory_path: Path
) -> None:
    path, chunks = damaged(memory_path / "a")
    shutil.copytree(path, memory_path / "good")
    chunk = chunks[which]
    if damage == "missing":
        chunk.unlink()
    elif damage == "truncated":
        os.truncate(chunk, 5000)
    else:
        flip(chunk)
    for read_only in (True, False):
        with pytest.raises(SharpwaveIOError, match=rf"{chunk.name} is {damage}.*repair=True"):
            MmapReplayBuffer.open(path, read_only=read_only, verify=True)
    with pytest.warns(UserWarning, match=rf"lost \d+ steps: .*{chunk.name} is {damage}"):
        repaired = MmapReplayBuffer.open(path, verify=True, repair=True)
    good = MmapReplayBuffer.open(memory_path / "good")
    kept = len(repaired)
    assert kept < len(good)
    assert repaired.indices().tolist() == good.indices().tolist()[len(good) - kept :]
    np.testing.assert_array_equal(
        repaired.gather(repaired.indices())["obs"],
        good.gather(good.indices())["obs"][len(good) - kept :],
    )
    rows = [
        {
            "obs": np.full(2500, i % 256, np.uint8),
            "action": i,
            "reward": float(i),
            "terminated": False,
            "truncated": 0,
            "next_obs": np.full(2500, i % 256, np.uint8),
        }
        for i in range(2 * CAPACITY)
    ]
    push(rows, repaired, good)
    repaired.close(delete=False)
    again = MmapReplayBuffer.open(path, verify=True)
    content, expected = (b.gather(b.indices()) for b in (again, good))  # ids may have moved on
    assert_same(content, expected)


@pytest.mark.parametrize("name", ["state", "marks", "priorities"])
def test_a_truncated_file_is_named(name: str, memory_path: Path) -> None:
    buffer, _ = fill("prioritized streams", memory_path / "a")
    buffer.close(delete=False)
    os.truncate(memory_path / "a" / name, 16)
    for read_only in (True, False):
        with pytest.raises(SharpwaveIOError, match=name):
            MmapReplayBuffer.open(memory_path / "a", read_only=read_only)


def test_damaged_commit_words_are_noticed(memory_path: Path) -> None:
    buffer = small(memory_path / "a", 50)
    buffer.flush()
    buffer.push(*ROW)
    buffer.close(delete=False)
    flip(memory_path / "a" / "state", 64)  # of a closed folder: the last copy counts
    again = MmapReplayBuffer.open(memory_path / "a")
    assert len(again) == 51


def test_a_damaged_priority_is_noticed(memory_path: Path) -> None:
    buffer = small(memory_path / "a", 50, prioritized=True)
    buffer.close(delete=False)
    with (memory_path / "a" / "priorities").open("r+b") as file:
        file.write(np.full(4, np.nan, np.float32).tobytes())
    with pytest.raises(SharpwaveIOError, match="priorities"):
        MmapReplayBuffer.open(memory_path / "a")
