"""Compressed chunks give back every byte, block by block, and notice damage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharpwave import _native
from sharpwave.episodes.codecs import NAMES, Codec, EncodedChunk, encode_chunk
from sharpwave.errors import SharpwaveIOError
from sharpwave.types import Array


def write(path: Path, rows: Array, row_bytes: int, item_bytes: int, name: str) -> EncodedChunk:
    codec = Codec.parse(name)
    assert codec is not None
    data = encode_chunk(
        rows.reshape(-1), chunk=7, row_bytes=row_bytes, item_bytes=item_bytes, codec=codec
    )
    path.write_bytes(data)
    return opened(path, len(rows), row_bytes, item_bytes)


def opened(path: Path, n_rows: int, row_bytes: int, item_bytes: int) -> EncodedChunk:
    return EncodedChunk(path, chunk=7, n_rows=n_rows, row_bytes=row_bytes, item_bytes=item_bytes)


def read_all(encoded: EncodedChunk) -> Array:
    return np.concatenate([encoded.read_block(i) for i in range(encoded.n_blocks)])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("row_bytes", "item_bytes"), [(1, 1), (4, 4), (60, 4), (1088, 8), (7, 4)])
def test_every_block_comes_back(tmp_path: Path, name: str, row_bytes: int, item_bytes: int) -> None:
    rows = np.random.default_rng(0).integers(0, 255, (1000, row_bytes), dtype=np.uint8)
    encoded = write(tmp_path / "c", rows, row_bytes, item_bytes, name)
    np.testing.assert_array_equal(read_all(encoded), rows.reshape(-1))
    with pytest.raises(SharpwaveIOError, match="another chunk"):
        opened(tmp_path / "c", 1001, row_bytes, item_bytes)


@given(st.integers(1, 40), st.sampled_from([1, 2, 4, 8]), st.integers(1, 9), st.integers(0, 2**32))
def test_differences_come_back(n_rows: int, item_bytes: int, items: int, seed: int) -> None:
    row_bytes = items * item_bytes
    rows = np.random.default_rng(seed).integers(0, 256, n_rows * row_bytes, dtype=np.uint8)
    planes, back = np.empty_like(rows), np.empty_like(rows)
    _native.delta_rows(rows, row_bytes, item_bytes, planes)
    _native.undelta_rows(planes, row_bytes, item_bytes, back)
    np.testing.assert_array_equal(back, rows)
    bytes_ = rows.reshape(n_rows, items, item_bytes)
    before = np.concatenate([np.zeros_like(bytes_[:1]), bytes_[:-1]])
    expected = np.moveaxis(bytes_ - before, 2, 0)
    np.testing.assert_array_equal(planes, expected.reshape(-1))


def test_differences_compress_what_moves_slowly() -> None:
    frames = np.zeros((64, 84 * 84), np.uint8)
    frames[:] = np.random.default_rng(0).integers(0, 255, 84 * 84)  # one noisy picture
    frames[np.arange(64), np.arange(64)] += 1
    sizes = {}
    for name in ("zstd", "delta+zstd"):
        codec = Codec.parse(name)
        assert codec is not None
        sizes[name] = len(
            encode_chunk(frames.reshape(-1), chunk=0, row_bytes=84 * 84, item_bytes=1, codec=codec)
        )
    assert sizes["delta+zstd"] < frames.nbytes / 10


@pytest.mark.parametrize("name", NAMES)
def test_damage_is_noticed(tmp_path: Path, name: str) -> None:
    rows = np.random.default_rng(0).integers(0, 9, (3000, 64), dtype=np.uint8)
    write(tmp_path / "c", rows, 64, 4, name)
    good = (tmp_path / "c").read_bytes()
    for position in (0, 9, 40, 75, len(good) - 5):
        bad = bytearray(good)
        bad[position] ^= 0xFF
        (tmp_path / "c").write_bytes(bad)
        with pytest.raises(SharpwaveIOError, match="damaged"):
            read_all(opened(tmp_path / "c", 3000, 64, 4))
    (tmp_path / "c").write_bytes(good[: len(good) // 2])
    with pytest.raises(SharpwaveIOError, match="damaged"):
        read_all(opened(tmp_path / "c", 3000, 64, 4))
    with pytest.raises(SharpwaveIOError, match="cannot open"):
        opened(tmp_path / "none", 3000, 64, 4)


def test_unknown_codecs_are_refused() -> None:
    with pytest.raises(ValueError, match="codec must be one of"):
        Codec.parse("gzip")
    assert Codec.parse("none") is None
    assert Codec.parse(None) is None
