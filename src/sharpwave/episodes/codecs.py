"""Compressed chunks: blocks of rows that are read one by one.

A chunk of a column that is full does not change any more, so it may be kept compressed. Its file
has a header, a table with the place, size and checksum of every block, and the blocks. A block
holds consecutive rows (about 128 KiB of them) and is compressed by itself, so a row costs one
block.

With "delta" a block holds the differences between rows, bytes of equal weight together: frames of a
picture differ little, and the high bytes of numbers hardly at all.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sharpwave import _native
from sharpwave.core.flags import flag
from sharpwave.core.optional import require
from sharpwave.errors import SharpwaveIOError
from sharpwave.types import Array

NAMES = ("zstd", "lz4", "delta+zstd", "delta+lz4")
_MAGIC = b"swcoded\n"
_HEADER = struct.Struct("<8s6Q8sII")  # ..., codec, delta, checksum of header and table
_ENTRY = struct.Struct("<QII")  # offset, compressed bytes, checksum of the rows
_BLOCK_BYTES = 128 * 1024


@dataclass(frozen=True)
class Codec:
    """Compression of a column's full chunks.

    Attributes:
        library: Library that compresses.
        delta: Compress differences between rows instead of values.
    """

    library: Literal["zstd", "lz4"]
    delta: bool

    @classmethod
    def parse(cls, name: str | None) -> Codec | None:
        """The codec of a name, None for none.

        Raises:
            ValueError: For a name that is none of `NAMES`.
            ImportError: The library is not installed; the message names the extra.

        Example:
            >>> Codec.parse("delta+zstd")
            Codec(library='zstd', delta=True)
        """
        if name is None or name == "none":
            return None
        if name not in NAMES:
            raise ValueError(f"codec must be one of {('none', *NAMES)}, got {name!r}")
        codec = cls("zstd" if name.endswith("zstd") else "lz4", name.startswith("delta+"))
        _library(codec.library)
        return codec


@lru_cache
def _library(name: str) -> Any:
    return require({"zstd": "zstandard", "lz4": "lz4.frame"}[name], extra="codecs")


def rows_of_block(row_bytes: int) -> int:
    """Rows that are compressed together."""
    return max(_BLOCK_BYTES // row_bytes, 1)


def _whole_items(row_bytes: int, item_bytes: int) -> int:
    return item_bytes if row_bytes % item_bytes == 0 else 1  # rows are padded at times


def _compress(library: str, data: bytes) -> bytes:
    module = _library(library)
    compressed: bytes = (
        module.ZstdCompressor(level=3).compress(data)
        if library == "zstd"
        else module.compress(data)
    )
    return compressed


def _decompress(library: str, data: bytes, size: int) -> bytes:
    module = _library(library)
    rows: bytes = (
        module.ZstdDecompressor().decompress(data, max_output_size=size)
        if library == "zstd"
        else module.LZ4FrameDecompressor().decompress(data, max_length=size)
    )
    if len(rows) != size:
        raise ValueError(f"a block must have {size} bytes, got {len(rows)}")
    return rows


def encode_chunk(
    rows: Array, *, chunk: int, row_bytes: int, item_bytes: int, codec: Codec, seed: int = 0
) -> bytes:
    """The file of a compressed chunk.

    Args:
        rows: All bytes of the chunk's rows, uint8 [N * row_bytes].
        chunk: Its number.
        row_bytes: Bytes of a row.
        item_bytes: Bytes of a number in it.
        codec: How.
        seed: Seed of the column, with which the checksum of the file begins.
    """
    block_rows = rows_of_block(row_bytes)
    n_rows = len(rows) // row_bytes
    item_bytes = _whole_items(row_bytes, item_bytes)
    table, blocks = [], []
    n_blocks = -(-n_rows // block_rows)
    offset = _HEADER.size + n_blocks * _ENTRY.size
    for first in range(0, n_rows, block_rows):
        block = rows[first * row_bytes : (first + block_rows) * row_bytes]
        plain = block.tobytes()
        if codec.delta:
            planes = np.empty_like(block)
            _native.delta_rows(block, row_bytes, item_bytes, planes)
            data = _compress(codec.library, planes.tobytes())
        else:
            data = _compress(codec.library, plain)
        table.append(_ENTRY.pack(offset, len(data), _native.crc32c(plain)))
        blocks.append(data)
        offset += len(data)
    entries = b"".join(table)
    numbers = (chunk, n_rows, row_bytes, item_bytes, block_rows, n_blocks)
    library = codec.library.encode().ljust(8)
    unsigned = _HEADER.pack(_MAGIC, *numbers, library, codec.delta, 0)
    checksum = _native.crc32c(unsigned + entries, seed)
    header = _HEADER.pack(_MAGIC, *numbers, library, codec.delta, checksum)
    return b"".join((header, entries, *blocks))


class EncodedChunk:
    """A compressed chunk, read block by block.

    Args:
        path: The file that holds what `encode_chunk` made.
        chunk: The number that it must have.
        n_rows: The rows likewise.
        row_bytes: Bytes of a row likewise.
        item_bytes: Bytes of a number likewise.
        seed: As for `encode_chunk`.

    Raises:
        SharpwaveIOError: The file cannot be read or is damaged.
    """

    def __init__(
        self,
        path: Path,
        *,
        chunk: int,
        n_rows: int,
        row_bytes: int,
        item_bytes: int,
        seed: int = 0,
    ) -> None:
        self.path = path
        self._file = -1
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise SharpwaveIOError(error.errno, f"cannot open {path}: {error.strerror}") from error
        header = os.pread(self._file, _HEADER.size, 0)
        if len(header) != _HEADER.size or not header.startswith(_MAGIC):
            raise self._damaged("its header is none of a compressed chunk")
        _, *numbers, library, delta, checksum = _HEADER.unpack(header)
        self.n_rows, self.row_bytes = n_rows, row_bytes
        self.item_bytes = _whole_items(row_bytes, item_bytes)
        self.block_rows = rows_of_block(row_bytes)
        n_blocks = -(-n_rows // self.block_rows)
        if numbers != [chunk, n_rows, row_bytes, self.item_bytes, self.block_rows, n_blocks]:
            raise self._damaged("it is of another chunk or another column")
        entries = os.pread(self._file, n_blocks * _ENTRY.size, _HEADER.size)
        unsigned = header[:-4] + bytes(4)
        if len(entries) != n_blocks * _ENTRY.size or (
            _native.crc32c(unsigned + entries, seed) != checksum
        ):
            raise self._damaged("the checksum of its header does not fit")
        if library.rstrip() not in (b"zstd", b"lz4"):
            raise self._damaged("its header names a codec that there is not")
        self._library = library.decode().strip()
        self._delta = flag("delta", delta)
        self._table = list(_ENTRY.iter_unpack(entries))

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return len(self._table)

    def read_block(self, block: int) -> Array:
        """The rows of a block, uint8 [rows * row_bytes].

        Raises:
            SharpwaveIOError: The block is damaged.
        """
        offset, size, checksum = self._table[block]
        rows = min(self.block_rows, self.n_rows - block * self.block_rows)
        try:
            data = os.pread(self._file, size, offset)
            plain = _decompress(self._library, data, rows * self.row_bytes)
        except Exception as error:  # of the compressor's own kinds
            raise self._damaged(f"block {block}: {error}") from error
        found: Array = np.frombuffer(plain, np.uint8)
        if self._delta:
            planes = found
            found = np.empty_like(planes)
            _native.undelta_rows(planes, self.row_bytes, self.item_bytes, found)
        if _native.crc32c(found.tobytes()) != checksum:
            raise self._damaged(f"the checksum of block {block} does not fit")
        return found

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def __del__(self) -> None:
        self.close()

    def _damaged(self, what: str) -> SharpwaveIOError:
        return SharpwaveIOError(f"{self.path} is damaged: {what}")
