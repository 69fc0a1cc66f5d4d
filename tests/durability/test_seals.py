"""Chunks whose checksums were lost or are of something else: damage, which stays provable."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave import EpisodeBuffer, MmapReplayBuffer, SharpwaveIOError, _native
from sharpwave.cli.main import main
from tests.durability.damage import TRAILER

FIELDS = {"a": ("float", 256), "b": ("float", 256)}
LENGTH = 30
"""Steps of an episode. A chunk has 64, so that several are full."""


def episodes(folder: Path) -> EpisodeBuffer:
    return EpisodeBuffer(folder, 20, LENGTH, FIELDS, {"task": "int"})


def replay(folder: Path, n_envs: int | None = 2) -> MmapReplayBuffer:
    return MmapReplayBuffer(10, 400, 256, 1, folder, n_envs=n_envs)


def fill(buffer: Any, first: int = 0, rows: int = 150) -> None:
    if isinstance(buffer, EpisodeBuffer):
        for start in range(first, first + rows, LENGTH):
            numbers = np.arange(start, start + LENGTH, dtype=np.float32)
            steps = np.repeat(numbers[:, None], 256, axis=1)
            buffer.store_episode(a=steps, b=-steps, task=start)
        return
    for step in range(first, first + rows):
        for env in range(buffer.n_envs or 1):
            obs, stream = np.full(256, step), {"stream": env} if buffer.n_envs else {}
            buffer.push(obs, env, 0.0, False, False, obs + 1, **stream)


def content(buffer: Any) -> Any:
    """All that is in a buffer."""
    if isinstance(buffer, EpisodeBuffer):
        data = buffer.get_all_data(as_numpy=True)
    else:
        data = buffer.gather(buffer.indices())
    return {name: values.tobytes() for name, values in data.items()}


def opened(folder: Path, **options: Any) -> Any:
    if json.loads((folder / "header.json").read_text())["kind"] == "episodes":
        return EpisodeBuffer.from_folder(folder, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what was lost
        return MmapReplayBuffer.open(folder, **options)


@pytest.fixture(params=["episodes", "replay"])
def store(request: pytest.FixtureRequest, memory_path: Path) -> Path:
    folder = memory_path / "store"
    with episodes(folder) if request.param == "episodes" else replay(folder) as buffer:
        fill(buffer)
    return folder


def columns(store: Path) -> tuple[list[Path], list[Path]]:
    """The chunk files of two columns with rows of one size."""
    names = (
        ("a", "b")
        if (store / "columns" / "_episodes.000000000000").exists()
        else (
            "rows-0",
            "rows-1",
        )
    )
    first, second = (sorted((store / "columns").glob(f"{name}.*")) for name in names)
    assert len(first) == len(second) >= 3
    return first, second


def swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def swap_all(ones: list[Path], others: list[Path]) -> None:
    for one, other in zip(ones, others, strict=True):
        swap(one, other)


def write_at(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset, os.SEEK_END if offset < 0 else os.SEEK_SET)
        file.write(data)


def zeros(path: Path) -> None:
    write_at(path, 0, bytes(path.stat().st_size))


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "the first chunk is zeros": lambda store: zeros(columns(store)[0][0]),
    "the last chunk is zeros": lambda store: zeros(columns(store)[0][-1]),
    "a trailer is zeros": lambda store: write_at(columns(store)[0][1], -TRAILER, bytes(TRAILER)),
    "the last trailer is zeros": lambda store: write_at(
        columns(store)[1][-1], -TRAILER, bytes(TRAILER)
    ),
    "a trailer is garbage": lambda store: write_at(columns(store)[0][0], -TRAILER, b"\xa5" * 48),
    "the last trailer is garbage": lambda store: write_at(
        columns(store)[0][-1], -TRAILER, b"\xa5" * 48
    ),
    "two columns are swapped": lambda store: swap_all(*columns(store)),
    "the last chunks of two columns are swapped": lambda store: swap(
        columns(store)[0][-1], columns(store)[1][-1]
    ),
    "two chunks are swapped": lambda store: swap(*columns(store)[0][:2]),
    "a chunk is there twice": lambda store: shutil.copy(*columns(store)[0][:2]),
    "a row of the last chunk is damaged": lambda store: write_at(columns(store)[0][-1], 5, b"?"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_was_flushed_needs_the_checksum_of_its_place(store: Path, name: str) -> None:
    """Chunks of zeros, garbage for a trailer, and columns in each other's place passed as sound."""
    DAMAGES[name](store)
    with pytest.raises(SharpwaveIOError, match=r"columns/"):
        opened(store, read_only=True, verify=True)
    assert main(["repair", "--dry-run", str(store)]) == 1
    # A writer that comes does not wipe the evidence, whether it is refused or goes on.
    with contextlib.suppress(SharpwaveIOError), opened(store) as buffer:
        fill(buffer, 1000, LENGTH)
    with pytest.raises(SharpwaveIOError, match=r"columns/"):
        opened(store, read_only=True, verify=True)
    assert main(["repair", str(store)]) == 0
    opened(store, read_only=True, verify=True).close()
    assert main(["repair", "--dry-run", str(store)]) == 0


def test_repair_alone_repairs(memory_path: Path) -> None:
    """`MmapReplayBuffer.open(repair=True)` without `verify` repaired nothing and said nothing."""
    with replay(memory_path / "a", n_envs=None) as buffer:
        fill(buffer, rows=300)
    zeros(sorted((memory_path / "a" / "columns").iterdir())[0])
    with pytest.warns(UserWarning, match="lost"):
        buffer = MmapReplayBuffer.open(memory_path / "a", repair=True)
    assert 0 < len(buffer) < 300
    assert buffer.gather(buffer.indices())["obs"].min() > 0
    buffer.close()


@pytest.mark.long
def test_what_a_dead_writer_left_is_sealed_by_the_next(memory_path: Path) -> None:
    """Rows that a killed writer had not flushed stayed without a checksum until the next flush."""
    makers: list[Any] = [episodes, replay]
    for make in makers:
        folder = memory_path / make.__name__
        with make(folder):
            pass
        child = os.fork()
        if child == 0:
            fill(opened(folder))
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        with opened(folder, read_only=True) as reader:
            expected = content(reader)
        child = os.fork()
        if child == 0:
            buffer = opened(folder)
            if isinstance(buffer, EpisodeBuffer):
                buffer._writer()
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        with opened(folder, read_only=True, verify=True) as reader:
            assert content(reader) == expected
        tail = columns(folder)[0][-1]
        write_at(tail, 5, b"?")
        with pytest.raises(SharpwaveIOError, match=tail.name):
            opened(folder, read_only=True, verify=True)


def test_an_update_does_not_make_damage_sound(memory_path: Path) -> None:
    """`update` wrote a new checksum over whatever else was in the chunk."""
    with episodes(memory_path / "a") as buffer:
        fill(buffer)
    tail = columns(memory_path / "a")[0][0]
    write_at(tail, 5, b"?")
    with EpisodeBuffer.from_folder(memory_path / "a") as buffer:
        with pytest.raises(SharpwaveIOError, match=tail.name):
            buffer.update(0, a=np.ones((LENGTH, 256)))
        buffer.update(0, b=np.ones((LENGTH, 256)))
        with pytest.raises(SharpwaveIOError, match=tail.name):
            buffer.verify()


def as_version_1(folder: Path) -> None:
    """Turn a folder into one that the library wrote before version 2."""
    header = json.loads((folder / "header.json").read_text())
    header.pop("checksum")
    header["version"] = 1
    header["checksum"] = _native.crc32c(json.dumps(header, sort_keys=True).encode())
    (folder / "header.json").write_text(json.dumps(header))
    state = (folder / "state").read_bytes()
    (folder / "state").write_bytes(state[: state.rindex(b'{\n "format"')])


def test_version_1_opens_and_goes_on(memory_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of before have trailers that name no column, and batches that commit in parts."""
    monkeypatch.setattr("sharpwave.storage.header.VERSION", 1)
    describe = _native.Engine.describe_folder
    makers: list[Any] = [episodes, replay]
    for make in makers:
        folder = memory_path / make.__name__
        with monkeypatch.context() as patch:

            def words_of_version_1(*arguments: Any) -> Any:
                *sizes, _ = describe(*arguments)
                return (*sizes, 9 + 2 * 2)

            patch.setattr(
                "sharpwave.buffers.mmap._native.Engine.describe_folder",
                staticmethod(words_of_version_1),
            )
            buffer = make(folder)
        with buffer:
            fill(buffer)
            expected = content(buffer)
        as_version_1(folder)
        with opened(folder, read_only=True, verify=True) as reader:
            assert content(reader) == expected
        with opened(folder) as writer:
            fill(writer, 1000, LENGTH)
            more = content(writer)
        with opened(folder, read_only=True, verify=True) as reader:
            assert content(reader) == more
        (folder / "header.json").unlink()  # the writer has left a copy of it
        assert main(["repair", str(folder)]) == 0
        zeros(columns(folder)[0][0])
        with pytest.raises(SharpwaveIOError, match=r"columns/"):
            opened(folder, read_only=True, verify=True)


@pytest.mark.parametrize("kind", ["episodes", "replay"])
@pytest.mark.parametrize("stride", [251, pytest.param(3, marks=pytest.mark.slow)])
def test_every_byte_is_covered_or_of_no_worth(kind: str, stride: int, memory_path: Path) -> None:
    """A byte that is flipped is told of by `verify`, or changes nothing that is read."""
    sound, work = memory_path / "sound", memory_path / "work"
    if kind == "episodes":
        buffer: Any = EpisodeBuffer(sound, 5, 20, {"x": "int"}, {"task": "int"})
        buffer.store_episode(x=np.arange(9), task=3)
    else:
        buffer = MmapReplayBuffer(5, 5, 2, 1, sound, n_envs=1)
        for i in range(4):
            buffer.push([i, i], i, i, False, False, [i + 1, i + 1])
    expected = content(buffer)
    buffer.close() if kind == "episodes" else buffer.close(delete=False)
    rng, told = random.Random(stride), 0
    for path in sorted(p for p in sound.rglob("*") if p.is_file()):
        data = path.read_bytes()
        live = [i for i, byte in enumerate(data) if byte or i % 4096 < 64]
        for byte in live[rng.randrange(stride) % max(len(live), 1) :: stride]:
            shutil.rmtree(work, ignore_errors=True)
            shutil.copytree(sound, work)
            target = work / path.relative_to(sound)
            target.write_bytes(
                data[:byte] + bytes([data[byte] ^ rng.randrange(1, 256)]) + data[byte + 1 :]
            )
            try:
                with opened(work, read_only=True, verify=True) as found:
                    assert content(found) == expected, (path, byte)
            except (SharpwaveIOError, ValueError):
                told += 1
    assert told > 0
