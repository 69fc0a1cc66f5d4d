"""Fields with a codec: full chunks are compressed, and every row comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave.episodes import EpisodeBuffer, layout
from sharpwave.episodes.codecs import NAMES
from sharpwave.errors import SharpwaveIOError
from sharpwave.types import Array

FIELDS: dict[str, Any] = {"image": ("uint8", (16, 16)), "reward": "float"}
LENGTH = 100


def image_of(step: int | np.integer[Any]) -> Array:
    return (np.arange(256).reshape(16, 16) + step).astype(np.uint8)


def make(folder: Path, **options: Any) -> EpisodeBuffer:
    options = {"codecs": {"image": "delta+zstd"}, **options}
    return EpisodeBuffer(folder, options.pop("max_episodes", 100), LENGTH, FIELDS, **options)


def store(buffer: EpisodeBuffer, n_episodes: int, first: int = 0) -> None:
    for episode in range(first, first + n_episodes):
        steps = np.arange(episode * LENGTH, (episode + 1) * LENGTH)
        buffer.store_episode(image=np.stack([image_of(s) for s in steps]), reward=steps)


def check(buffer: EpisodeBuffer) -> None:
    """Every row of every episode is what was stored."""
    table = buffer.episodes()
    for start in table.starts:
        found = buffer.gather_ranges([start], [LENGTH], LENGTH)
        for reward, image in zip(found["reward"][0], found["image"][0], strict=True):
            np.testing.assert_array_equal(image, image_of(int(reward)))
    rows = np.random.default_rng(0).permutation(int(table.starts[-1]) + LENGTH)
    rows = rows[rows >= table.starts[0]]
    gathered = buffer.gather(rows)
    expected = np.stack([image_of(int(reward)) for reward in gathered["reward"]])
    np.testing.assert_array_equal(gathered["image"], expected)


def coded_files(folder: Path) -> list[Path]:
    return sorted((folder / "columns").glob("image.*.coded"))


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_rows_come_back_from_every_codec(tmp_path: Path, name: str) -> None:
    with make(tmp_path / "a", codecs=name) as buffer:
        store(buffer, 12)
        check(buffer)
        buffer.flush()
        check(buffer)
        store(buffer, 3, first=12)
        check(buffer)
    assert coded_files(tmp_path / "a")
    reader = EpisodeBuffer.from_folder(tmp_path / "a", read_only=True, verify=True)
    check(reader)
    with EpisodeBuffer.from_folder(tmp_path / "a") as writer:
        store(writer, 10, first=15)
        writer.flush()
        check(writer)
        reader.refresh()
        check(reader)


def test_a_full_chunk_lies_compressed_only(tmp_path: Path) -> None:
    with make(tmp_path / "a") as buffer:
        store(buffer, 30)
    plain = {p.name for p in (tmp_path / "a" / "columns").glob("image.*")}
    coded = {p.name for p in coded_files(tmp_path / "a")}
    assert len(coded) >= 3
    assert len(plain - coded) == 1  # the one that is not full
    raw = 30 * LENGTH * 256
    assert sum(p.stat().st_size for p in coded_files(tmp_path / "a")) < raw / 5


@pytest.mark.long
def test_old_compressed_chunks_go_with_their_episodes(tmp_path: Path) -> None:
    with make(tmp_path / "a", max_episodes=10, circular=True) as buffer:
        for first in range(0, 60, 10):
            store(buffer, 10, first=first)
            buffer.flush()
            check(buffer)
    assert len(coded_files(tmp_path / "a")) <= 5


@pytest.mark.long
def test_memory_for_decompressed_rows_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "_DECODED_BYTES", 200_000)
    with make(tmp_path / "a") as buffer:
        store(buffer, 30)
        buffer.flush()
        check(buffer)
        check(buffer)


def test_a_file_that_its_writer_did_not_live_to_use_is_removed(tmp_path: Path) -> None:
    with make(tmp_path / "a", codecs=None) as buffer:
        store(buffer, 5)
    (tmp_path / "a" / "columns" / "image.000000000000.coded").write_bytes(b"half")
    with EpisodeBuffer.from_folder(tmp_path / "a") as buffer:
        store(buffer, 1, first=5)
        check(buffer)
    assert not coded_files(tmp_path / "a")


def test_damage_is_named_and_repaired(tmp_path: Path) -> None:
    with make(tmp_path / "a") as buffer:
        store(buffer, 20)
    victim = coded_files(tmp_path / "a")[1]
    data = bytearray(victim.read_bytes())
    data[-3] ^= 0xFF
    victim.write_bytes(data)
    with pytest.raises(SharpwaveIOError, match=victim.name):
        EpisodeBuffer.from_folder(tmp_path / "a", read_only=True, verify=True)
    reader = EpisodeBuffer.from_folder(tmp_path / "a", read_only=True)
    with pytest.raises(SharpwaveIOError, match=victim.name):
        check(reader)
    with EpisodeBuffer.from_folder(tmp_path / "a", repair=True) as buffer:
        assert len(buffer.lost.ids) > 0
        assert buffer.num_episodes == 20 - len(buffer.lost.ids)
        for start in buffer.episodes().starts:
            found = buffer.gather_ranges([start], [LENGTH], LENGTH)
            expected = np.stack([image_of(int(reward)) for reward in found["reward"][0]])
            np.testing.assert_array_equal(found["image"][0], expected)
    EpisodeBuffer.from_folder(tmp_path / "a", read_only=True, verify=True).close()


@pytest.mark.long
def test_compressed_rows_are_not_updated(tmp_path: Path) -> None:
    with make(tmp_path / "a") as buffer:
        store(buffer, 20)
        buffer.flush()
        with pytest.raises(ValueError, match="compressed"):
            buffer.update(0, image=np.zeros((LENGTH, 16, 16), np.uint8))
        buffer.update(0, reward=np.arange(LENGTH))
        check(buffer)


def test_codecs_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="fields of steps, got 'imgae'"):
        make(tmp_path / "a", codecs={"imgae": "zstd"})
    with pytest.raises(ValueError, match="codec must be one of"):
        make(tmp_path / "a", codecs="gzip")
    with pytest.raises(TypeError, match="dict by field"):
        make(tmp_path / "a", codecs=3)
