"""Damaged files: found, named, and gone on without."""

from __future__ import annotations

import shutil
import struct
import uuid
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sharpwave import EpisodeBuffer, SharpwaveIOError, _native
from tests.unit.episodes.episodes import crashed, make, rewards, store

FIELDS = {"big": ("float", (1024,)), "reward": "float"}  # 16 rows a chunk of big


def filled(folder: Path) -> Path:
    """Ten episodes of 10 steps, closed."""
    with make(
        folder, fields=FIELDS, max_episodes=12, max_timesteps=20, meta_fields={"task": "int"}
    ) as buffer:
        assert buffer._folder.header["columns"][0]["chunk_rows"] == 16
        for number in range(10):
            buffer.store_episode(big=np.full((10, 1024), number), reward=np.arange(10), task=number)
        return buffer.folder


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 255]))


def truncate(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


@pytest.mark.parametrize(
    ("damage", "word"),
    [(truncate, "truncated"), (Path.unlink, "missing"), (lambda p: flip(p, 70), "corrupt")],
)
def test_a_damaged_chunk_is_named_and_can_be_gone_on_without(
    tmp_path: Path, damage: Callable[[Path], None], word: str
) -> None:
    folder = filled(tmp_path)
    chunk = folder / "columns" / "big.000000000002"  # rows 32 to 47: episodes 3 and 4
    damage(chunk)
    with pytest.raises(SharpwaveIOError, match=word) as caught:
        EpisodeBuffer.from_folder(folder, verify=True)
    assert str(chunk) in str(caught.value)
    assert "repair=True" in str(caught.value)
    with EpisodeBuffer.from_folder(folder, repair=True) as buffer:
        assert buffer.lost
        assert buffer.lost.ids == (3, 4)
        assert buffer.lost.n_steps == 20
        assert str(chunk) in buffer.lost.chunks[0]
        assert buffer.num_episodes == 8
        assert buffer.episodes(aborted=True).meta["task"].tolist() == [0, 1, 2, 5, 6, 7, 8, 9]
        with buffer.one_episode(task=10):
            store_big(buffer, 3)
    with EpisodeBuffer.from_folder(folder, verify=True) as buffer:
        table = buffer.episodes()
        assert table.ids.tolist() == [0, 1, 2, 5, 6, 7, 8, 9, 10]
        steps = buffer.gather_ranges(table.starts, table.lengths, 10)
        assert steps["big"][:8, :, 0].tolist() == [[float(n)] * 10 for n in table.ids[:8]]
        assert not buffer.lost


@pytest.mark.parametrize("damage", [truncate, Path.unlink, lambda p: flip(p, 7)])
@pytest.mark.parametrize("column", ["big", "reward", "task", "_episodes"])
def test_a_reader_leaves_damaged_episodes_out_and_writes_nothing(
    tmp_path: Path, damage: Callable[[Path], None], column: str
) -> None:
    folder = filled(tmp_path)
    damage(folder / "columns" / f"{column}.00000000000{2 if column == 'big' else 0}")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with EpisodeBuffer.from_folder(folder, read_only=True, repair=True) as buffer:
        lost = [3, 4] if column == "big" else list(range(10))
        assert list(buffer.lost.ids) == lost
        table = buffer.episodes()
        assert table.ids.tolist() == [n for n in range(10) if n not in lost]
        assert len(buffer) == 10 - len(lost)
        steps = buffer.gather_ranges(table.starts, table.lengths, 10)
        assert steps["big"][:, :, 0].tolist() == [[float(n)] * 10 for n in table.ids]
        assert buffer.gather(np.arange(100))["big"].shape == (100, 1024)  # zeros where it is gone
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def store_big(buffer: EpisodeBuffer, length: int) -> None:
    for t in range(length):
        buffer.store(big=100, reward=t)


def test_a_damaged_tail_can_be_written_behind(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    last = sorted((folder / "columns").glob("big.*"))[-1]
    last.unlink()
    with EpisodeBuffer.from_folder(folder, repair=True) as buffer:
        assert buffer.lost.ids == (9,)
        with buffer.one_episode():
            store_big(buffer, 20)
    with EpisodeBuffer.from_folder(folder, verify=True) as buffer:
        table = buffer.episodes()
        assert table.ids.tolist() == [*range(9), 10]
        assert (buffer.gather(np.arange(100, 120))["big"] == 100).all()


@pytest.mark.parametrize("name", ["task.000000000000", "_episodes.000000000000"])
def test_damage_to_what_describes_episodes_is_found(tmp_path: Path, name: str) -> None:
    folder = filled(tmp_path)
    flip(folder / "columns" / name, 20)
    with pytest.raises(SharpwaveIOError, match=name):
        EpisodeBuffer.from_folder(folder, verify=True)
    with EpisodeBuffer.from_folder(folder, repair=True) as buffer:
        assert buffer.lost.ids == tuple(range(10))
        assert buffer.num_episodes == 0
        with buffer.one_episode(task=1):
            store_big(buffer, 3)
    with EpisodeBuffer.from_folder(folder, verify=True) as buffer:
        assert rewards(buffer) == [[0, 1, 2]]


def test_a_sound_folder_has_nothing_to_repair(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    with EpisodeBuffer.from_folder(folder, repair=True) as buffer:
        assert not buffer.lost
        assert buffer.num_episodes == 10
    with EpisodeBuffer.from_folder(folder, read_only=True, repair=True) as buffer:
        assert not buffer.lost
        assert buffer.num_episodes == 10


@pytest.mark.parametrize("name", ["state", "header.json"])
def test_damage_to_the_folders_own_files_is_named(tmp_path: Path, name: str) -> None:
    folder = filled(tmp_path)
    truncate(folder / name)
    with pytest.raises(SharpwaveIOError, match=name):
        EpisodeBuffer.from_folder(folder)


def journal(rows: list[tuple[int, float]]) -> bytes:
    text = struct.pack("<8sQ", b"swpatch\n", len(rows))
    for row, value in rows:
        text += struct.pack("<4Qf", 0, 1, row, 1, value)
    return text + struct.pack("<I", _native.crc32c(text))


def test_an_update_that_was_cut_off_is_done_again_or_not_at_all(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    whole = journal([(3, -3.0), (15, -15.0)])
    for text, expected in ((whole, [-3.0, -15.0]), (whole[:-1], [3.0, 5.0])):
        copied = tmp_path / f"copy {len(text)}"
        shutil.copytree(folder, copied)
        (copied / "update.journal").write_bytes(text)
        with EpisodeBuffer.from_folder(copied) as buffer:
            buffer.flush()
            buffer._writer()
            assert buffer.gather([3, 15])["reward"].tolist() == expected
            buffer.verify()
        assert not (copied / "update.journal").exists()


def reboot(folder: Path) -> None:
    """Make the state look like one of an earlier start of the system."""
    boot = uuid.UUID(Path("/proc/sys/kernel/random/boot_id").read_text().strip()).bytes
    state = (folder / "state").read_bytes()
    assert boot in state
    (folder / "state").write_bytes(state.replace(boot, bytes(16)))


@pytest.mark.skipif(
    not Path("/proc/sys/kernel/random/boot_id").exists(), reason="needs the boot id of Linux"
)
@pytest.mark.parametrize("durability", ["process", "power"])
def test_after_the_loss_of_power_the_last_flush_counts(tmp_path: Path, durability: str) -> None:
    buffer = make(tmp_path, durability=durability)
    with buffer.one_episode():
        store(buffer, 3)
    store(buffer, 2)
    buffer.flush()
    store(buffer, 2)
    buffer.advance_episode()
    left = crashed(buffer, tmp_path / "left")
    reboot(left)
    with EpisodeBuffer.from_folder(left, read_only=True) as reader:
        expected = [[0, 1, 2]] if durability == "process" else [[0, 1, 2], [0, 1, 0, 1]]
        assert rewards(reader) == expected
    with EpisodeBuffer.from_folder(left) as again:
        with again.one_episode():
            store(again, 1)
        assert rewards(again) == [*expected, [0]]
        if durability == "process":
            assert rewards(again, aborted=True) == [[0, 1, 2], [0, 1], [0]]
