"""Folders with files that nobody of us wrote: named errors, and nothing beside the rows is read.

The checksums of what is forged are right, so that only what the numbers mean can be wrong.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave import (
    EpisodeBuffer,
    MmapReplayBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    SharpwaveIOError,
    _native,
)
from tests.durability.forging import (
    forge_bytes,
    forge_commit,
    forge_header,
    forge_journal,
    forge_words,
    survives,
)

FIELDS = {"obs": {"image": ("uint8", (8, 8)), "speed": "float"}, "action": ("float", 2, 1.0)}


def make_episodes(folder: Path) -> None:
    with EpisodeBuffer(folder, 10, 30, FIELDS, {"task": ("int", 3)}) as buffer:
        for length in (5, 1, 7):
            steps = {"image": np.ones((length, 8, 8)), "speed": np.arange(length)}
            buffer.store_episode(obs=steps, action=np.zeros((length, 2)), task=[1, 2, 3])


def make_coded(folder: Path) -> None:
    with EpisodeBuffer(folder, 4, 90, {"image": ("uint8", 4096)}, codecs="delta+lz4") as buffer:
        for _ in range(3):
            buffer.store_episode(image=np.ones((80, 4096)))
    assert list((folder / "columns").glob("*.coded"))


def make_batch(folder: Path) -> None:
    """A batch of episodes that was being written: what lies in `staging`."""
    buffer = EpisodeBuffer(folder, 10, 30, FIELDS, {"task": ("int", 3)})
    buffer._begin_batch(2, task=np.ones((2, 3)))
    for _ in range(3):
        steps = {"image": np.ones((2, 8, 8)), "speed": np.ones(2)}
        buffer.store_batch(obs=steps, action=np.zeros((2, 2)))
    shutil.copytree(folder, folder.with_name("killed"))
    buffer.close()
    shutil.rmtree(folder)
    folder.with_name("killed").rename(folder)


def make_replay(folder: Path, n_envs: int | None = None, **options: Any) -> None:
    with MmapReplayBuffer(5, 20, 3, 1, folder, n_envs=n_envs, **options) as buffer:
        for i in range(30):
            stream = {"stream": i % n_envs} if n_envs else {}
            buffer.push([i] * 3, i, i, i % 7 == 6, False, [i + 1] * 3, **stream)


def make_streams(folder: Path) -> None:
    make_replay(folder, n_envs=2, prioritized=True)


def make_saved(folder: Path) -> None:
    buffer = PrioritizedReplayBuffer(20, 3, 1, n_envs=2)
    for i in range(30):
        buffer.push([i] * 3, i, i, i % 7 == 6, False, [i + 1] * 3, stream=i % 2)
    buffer.save(folder)


MAKERS: dict[str, Callable[[Path], None]] = {
    "episodes": make_episodes,
    "coded": make_coded,
    "batch": make_batch,
    "replay": make_replay,
    "streams": make_streams,
    "saved": make_saved,
}


OPTIONS: list[Any] = [{"read_only": True}, {}, {"verify": True}, {"repair": True}]


def use(kind: str, folder: Path, rng: random.Random) -> None:
    """Read everything in a folder, and write to it. Errors must be named."""
    if kind == "saved":
        read_replay(PrioritizedReplayBuffer.load(folder))
    elif kind in ("replay", "streams"):
        options = rng.choice(OPTIONS)
        with MmapReplayBuffer.open(folder, **options) as buffer:
            read_replay(buffer)
            if not buffer.read_only and "obs" in buffer.schema.fields:
                shapes = {n: np.zeros(f.field.shape) for n, f in leaves(buffer.schema)}
                buffer.push(**shapes, **({"stream": 0} if buffer.n_envs else {}))
    else:
        options = rng.choice(OPTIONS)
        with EpisodeBuffer.from_folder(folder, **options) as episodes:
            episodes.get_all_data(as_numpy=True)
            table = episodes.episodes(aborted=True)
            rows = [
                row
                for s, n in zip(table.starts, table.lengths, strict=True)
                for row in range(s, s + n)
            ]
            episodes.gather(np.asarray(rows, np.int64))
            if not episodes.read_only:
                with episodes.one_episode():
                    episodes.store()


def leaves(schema: Any) -> Any:
    return [(leaf.name, leaf) for leaf in schema.leaves]


def read_replay(buffer: ReplayBuffer) -> None:
    if len(buffer):
        buffer.gather(buffer.indices())
        with contextlib.suppress(ValueError):  # all priorities may be zero
            buffer.sample(min(4, len(buffer)))
    len(buffer)
    buffer.stats()


def outcome(kind: str, folder: Path, rng: random.Random) -> str | None:
    """The error that opening a forged folder ends in, None without one."""
    try:
        use(kind, folder, rng)
    except SharpwaveIOError as error:
        return str(error)
    return None


def forge(kind: str, folder: Path, rng: random.Random) -> None:
    ways: list[Callable[[], Any]]
    if kind == "saved":
        ways = [lambda: forge_commit(folder, rng)]
    else:
        ways = [lambda: forge_header(folder, rng)] * 4 + [lambda: forge_words(folder, rng)] * 2
        if kind == "episodes":
            ways.append(lambda: forge_journal(folder, rng))
        files = [p for p in sorted(folder.rglob("*")) if p.is_file() and p.name != "lock"]
        ways.append(lambda: forge_bytes(rng.choice(files), rng))
    rng.choice(ways)()


@pytest.mark.long(but=["60-episodes"])
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("count", [60, pytest.param(3000, marks=pytest.mark.slow)])
def test_forged_folders_end_in_named_errors(kind: str, count: int, memory_path: Path) -> None:
    """They ended in a bare KeyError, IndexError, RecursionError, bad_alloc or AttributeError."""
    sound, folder, notes = (memory_path / name for name in ("sound", "forged", "notes"))
    MAKERS[kind](sound)
    seed = int(os.environ.get("FORGING_SEED", random.randrange(10**9)))

    def work() -> None:
        warnings.simplefilter("ignore")
        for number in range(count):
            rng = random.Random(seed + number)
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(sound, folder)
            forge(kind, folder, rng)
            notes.write_text(f"FORGING_SEED={seed + number}")
            told = outcome(kind, folder, rng)
            assert told is None or str(folder) in told, told

    survives(work, notes, seconds=60 + count)


@pytest.mark.parametrize("shape", [[9, 9], [64, 64], [1], [8], [8, 8, 2], [2**20]])
@pytest.mark.parametrize("columns_too", [False, True])
def test_a_schema_that_the_columns_do_not_have_is_refused(
    shape: list[int], columns_too: bool, memory_path: Path
) -> None:
    """The heap overflowed in `gather`, or batches held memory that nobody had written."""
    folder = memory_path / "a"
    make_episodes(folder)
    header = json.loads((folder / "header.json").read_text())
    header.pop("checksum")
    header["schema"]["fields"]["obs.image"]["shape"] = shape
    if columns_too:  # then the files are not as large as they should be, or the checksums are off
        header["columns"][0]["row_bytes"] = int(np.prod(shape))
    header["checksum"] = _native.crc32c(json.dumps(header, sort_keys=True).encode())
    (folder / "header.json").write_text(json.dumps(header))
    with pytest.raises(SharpwaveIOError, match=r"header\.json|columns"):
        EpisodeBuffer.from_folder(folder, read_only=True, verify=True)


def test_native_code_compares_fields_and_columns_itself(memory_path: Path) -> None:
    make_episodes(memory_path / "a")
    make_coded(memory_path / "b")
    one = EpisodeBuffer.from_folder(memory_path / "a")
    other = EpisodeBuffer.from_folder(memory_path / "b")
    with pytest.raises(ValueError, match="size of their fields"):
        one._attach(other._engine, *one._groups)
