"""Loads survive whatever they find in a folder, and name the file that is wrong."""

from __future__ import annotations

import json
import os
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave import PrioritizedReplayBuffer, ReplayBuffer, SharpwaveIOError
from sharpwave.buffers import snapshot
from tests.durability.saves import filled, state_of, streams

REJECTED = (SharpwaveIOError, ValueError)


@pytest.mark.parametrize("make", [lambda: filled(3), lambda: filled(2, kind="rank"), streams])
def test_a_load_gives_exactly_what_was_saved(
    tmp_path: Path, make: Callable[[], ReplayBuffer]
) -> None:
    buffer = make()
    buffer.save(tmp_path / "saved")
    assert state_of(type(buffer).load(tmp_path / "saved")) == state_of(buffer)


@pytest.mark.long(but=["<lambda>0"])
@pytest.mark.parametrize("make", [lambda: filled(3), lambda: filled(2, kind="rank"), streams])
def test_a_changed_byte_in_any_file_is_noticed(
    tmp_path: Path, make: Callable[[], ReplayBuffer]
) -> None:
    buffer = make()
    buffer.save(tmp_path / "saved")
    random = np.random.default_rng(0)
    for file in sorted((tmp_path / "saved").rglob("*")):
        if not file.is_file() or file.name == ".lock":
            continue
        intact = file.read_bytes()
        for position in {0, len(intact) - 1, *random.integers(0, len(intact), 20).tolist()}:
            changed = bytearray(intact)
            changed[position] ^= 0xFF
            file.write_bytes(changed)
            with pytest.raises(SharpwaveIOError, match=file.name):
                type(buffer).load(tmp_path / "saved")
        file.write_bytes(intact)
    assert state_of(type(buffer).load(tmp_path / "saved")) == state_of(buffer)


@pytest.mark.parametrize(
    "damage", ["shorter", "longer", "empty", "missing", "folder", "link", "pipe"]
)
def test_a_file_that_is_not_what_was_saved_is_named(tmp_path: Path, damage: str) -> None:
    filled(1).save(tmp_path / "saved")
    [data] = (tmp_path / "saved").glob("data-*")
    for file in sorted(data.iterdir()):
        intact = file.read_bytes()
        file.unlink()
        if damage in ("shorter", "longer", "empty"):
            changes = {"shorter": intact[:-1], "longer": intact + b"\0", "empty": b""}
            file.write_bytes(changes[damage])
        elif damage == "folder":
            file.mkdir()
        elif damage == "link":
            (tmp_path / "elsewhere").write_bytes(intact)
            file.symlink_to(tmp_path / "elsewhere")
        elif damage == "pipe":
            os.mkfifo(file)
        with pytest.raises(SharpwaveIOError, match=file.name):
            PrioritizedReplayBuffer.load(tmp_path / "saved")
        if file.is_dir():
            file.rmdir()
        file.unlink(missing_ok=True)
        file.write_bytes(intact)
    assert len(PrioritizedReplayBuffer.load(tmp_path / "saved")) == 40


def rewrite(folder: Path, change: Callable[[dict[str, Any]], Any]) -> bool:
    """Change the commit and its checksum, as an attacker would; whether it differs."""
    path = folder / "commit.json"
    commit = json.loads(path.read_bytes().split(b"\n", 1)[1])
    before = json.dumps(commit)
    replaced = change(commit)
    text = json.dumps(commit if replaced is None else replaced)
    path.write_bytes(f"{zlib.crc32(text.encode()):08x}\n{text}".encode())
    return text != before


def head(index: int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(commit: dict[str, Any]) -> None:
        commit["heads"][0][index] = value

    return change


def entry(section: str, key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(commit: dict[str, Any]) -> None:
        commit[section][key] = value

    return change


CRAFTED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "data outside": lambda c: c.update(data="../../../../etc"),
    "data absolute": lambda c: c.update(data="/etc"),
    "data number": lambda c: c.update(data=7),
    "data null byte": lambda c: c.update(data="data-\0"),
    "not a dict": lambda c: [c],
    "nothing": lambda _: {},
    "class number": lambda c: c.update({"class": 5}),
    "no heads": lambda c: c.update(heads=[]),
    "many heads": lambda c: c.update(heads=c["heads"] * 1000),
    "heads of strings": lambda c: c.update(heads=["abcd"]),
    "heads null": lambda c: c.update(heads=None),
    "head short": lambda c: c.update(heads=[[0, 1]]),
    "floor above top": head(0, 10**6),
    "floor negative": head(0, -1),
    "floor far below": head(0, 0),
    "top huge": head(1, 2**64 - 1),
    "top beyond 64 bits": head(1, 2**70),
    "top negative": head(1, -5),
    "top fraction": head(1, 1.5),
    "top text": head(1, "x"),
    "pending nothing": lambda c: c.update(heads=[[0, 0, True, True]] * len(c["heads"])),
    "no counters": lambda c: c.update(counters=[]),
    "negative counters": lambda c: c.update(counters=[-1] * 5),
    "capacity zero": entry("options", "capacity", 0),
    "capacity negative": entry("options", "capacity", -1),
    "capacity other": entry("options", "capacity", 1000),
    "capacity smaller": entry("options", "capacity", 4),
    "capacity huge": entry("options", "capacity", 2**61),
    "capacity beyond 64 bits": entry("options", "capacity", 2**70),
    "unknown option": entry("options", "color", 1),
    "n_envs text": entry("options", "n_envs", "2"),
    "n_envs other": entry("options", "n_envs", 3),
    "schema empty": lambda c: c.update(schema={}),
    "schema list": lambda c: c.update(schema=[1]),
    "schema code": lambda c: c.update(schema={"obs": {"dtype": "object", "shape": []}}),
    "schema other": lambda c: c.update(
        schema={"obs": {"dtype": "int8", "shape": [9], "stack": 1, "axis": 0, "finite": False}}
    ),
    "schema huge": lambda c: c.update(
        schema={"obs": {"dtype": "int8", "shape": [2**62], "stack": 1, "axis": 0, "finite": False}}
    ),
    "no files": lambda c: c.update(files={}),
    "files list": lambda c: c.update(files=[]),
    "sizes negative": lambda c: [e.update(bytes=-1) for e in c["files"].values()] and None,
    "sizes huge": lambda c: [e.update(bytes=2**62) for e in c["files"].values()] and None,
    "no checksums": lambda c: [e.update(checksums=[]) for e in c["files"].values()] and None,
}


@pytest.mark.parametrize("name", CRAFTED)
@pytest.mark.parametrize("make", [lambda: filled(1), streams], ids=["priorities", "streams"])
def test_a_crafted_commit_is_rejected(
    tmp_path: Path, make: Callable[[], ReplayBuffer], name: str
) -> None:
    buffer = make()
    buffer.save(tmp_path / "saved")
    if not rewrite(tmp_path / "saved", CRAFTED[name]):
        return  # it was so already
    with pytest.raises((*REJECTED, MemoryError)) as caught:
        type(buffer).load(tmp_path / "saved")
    if caught.type is not MemoryError:
        assert "saved" in str(caught.value)


@pytest.mark.parametrize("key", ["max_priority", "beta", "changes", "sorted"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, None, "x", 1e300])
def test_crafted_priorities_are_rejected(tmp_path: Path, key: str, value: Any) -> None:
    filled(1, kind="rank").save(tmp_path / "saved")
    rewrite(tmp_path / "saved", entry("scalars", key, value))
    with pytest.raises(REJECTED):
        PrioritizedReplayBuffer.load(tmp_path / "saved")


def test_priorities_of_steps_that_are_not_there_are_rejected(tmp_path: Path) -> None:
    buffer = PrioritizedReplayBuffer(40, 3, 1)
    buffer.push([1] * 3, 1, 1, False, False, [1] * 3)
    buffer.save(tmp_path / "saved")
    [data] = (tmp_path / "saved").glob("data-*")
    leaves = np.ones(40, np.float32)
    (data / "leaves").write_bytes(leaves.tobytes())
    rewrite(
        tmp_path / "saved",
        lambda c: c["files"]["leaves"].update(checksums=[zlib.crc32(leaves.tobytes())]),
    )
    with pytest.raises(SharpwaveIOError, match="steps in the buffer"):
        PrioritizedReplayBuffer.load(tmp_path / "saved")


@pytest.mark.long
def test_random_marks_and_heads_never_crash(tmp_path: Path) -> None:
    """Whatever passes the checks must be safe to sample and to push to."""
    random = np.random.default_rng(1)
    accepted = 0
    for _ in range(60):
        streams(int(random.integers(0, 30))).save(tmp_path / "saved")
        [data] = (tmp_path / "saved").glob("data-*")
        checksums = {}
        for file in data.glob("marks-*"):
            noise = random.integers(0, 256, file.stat().st_size, np.uint8).tobytes()
            file.write_bytes(noise)
            checksums[file.name] = zlib.crc32(noise)

        def change(commit: dict[str, Any], checksums: dict[str, int] = checksums) -> None:
            for name, checksum in checksums.items():
                commit["files"][name]["checksums"] = [checksum]
            for one in commit["heads"]:
                one[2:] = random.integers(0, 2, 2).astype(bool).tolist()

        rewrite(tmp_path / "saved", change)
        try:
            buffer = ReplayBuffer.load(tmp_path / "saved")
        except SharpwaveIOError:
            continue
        accepted += 1
        if len(buffer) > 0:
            buffer.gather(buffer.indices())
            buffer.sample(len(buffer))
        for i in range(40):
            frame = np.full((2, 2, 4), i, np.uint8)
            buffer.push_batch(frame, frame, [i, i], [i, i], [0, 0], [0, 0])
        buffer.sample(4)
    assert accepted > 3


def test_nothing_in_a_save_is_a_pickle(tmp_path: Path) -> None:
    streams().save(tmp_path / "saved")
    files = [file for file in (tmp_path / "saved").rglob("*") if file.is_file()]
    assert {file.suffix for file in files} <= {"", ".json"}
    source = "".join(
        Path(module.__file__ or "").read_text()
        for module in (sys.modules["sharpwave.storage.generations"], snapshot)
    )
    for word in ("import pickle", "eval(", "exec(", "np.load", "marshal"):
        assert word not in source


def test_other_classes_versions_and_folders_are_refused_by_name(tmp_path: Path) -> None:
    filled(1).save(tmp_path / "saved")
    with pytest.raises(
        SharpwaveIOError, match="holds a PrioritizedReplayBuffer, not a ReplayBuffer"
    ):
        ReplayBuffer.load(tmp_path / "saved")
    rewrite(tmp_path / "saved", lambda c: c.update(version=999))
    with pytest.raises(SharpwaveIOError, match=r"must be sharpwave.replay version 1, got .* 999"):
        PrioritizedReplayBuffer.load(tmp_path / "saved")
    with pytest.raises(SharpwaveIOError, match="nowhere holds no complete save"):
        PrioritizedReplayBuffer.load(tmp_path / "nowhere")
    (tmp_path / "file").write_text("precious")
    with pytest.raises(SharpwaveIOError, match=r"must be a folder, got the file .*file"):
        filled(1).save(tmp_path / "file")
    with pytest.raises(SharpwaveIOError, match="file"):
        PrioritizedReplayBuffer.load(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize(
    "name", ["thesis.txt", "data-2024", "data-", "commit.json.bak", "data-xyz"]
)
def test_a_folder_with_something_else_is_never_touched(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "precious").write_text("data")
    with pytest.raises(SharpwaveIOError, match=f"something else than a saved buffer: {name}"):
        filled(1).save(tmp_path)
    assert (tmp_path / name / "precious").read_text() == "data"
    assert len(list(tmp_path.iterdir())) == 1


def test_names_of_fields_do_not_reach_the_file_system(tmp_path: Path) -> None:
    names = ["/etc/x", "a/b", "c" * 500, "nul\0", "\n"]
    buffer = ReplayBuffer(4, fields=dict.fromkeys(names, "float32"))
    buffer.push(**dict.fromkeys(names, 2.0))
    buffer.save(tmp_path / "saved")
    batch = ReplayBuffer.load(tmp_path / "saved").sample(1)
    assert all(batch[name][0] == 2.0 for name in names)
