"""Fields whose full chunks are compressed: putting them away, and bringing rows back."""

from __future__ import annotations

import errno
import glob
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sharpwave import _native
from sharpwave.episodes.codecs import Codec, EncodedChunk, encode_chunk
from sharpwave.errors import SharpwaveIOError
from sharpwave.storage.files import replace_file
from sharpwave.storage.folder import StoreFolder, file_name
from sharpwave.storage.header import identity_of
from sharpwave.types import Array

if TYPE_CHECKING:
    from sharpwave.episodes.open_folder import OpenFolder

SUFFIX = ".coded"
_OPEN_FILES = 64
_NO_ROWS: Array = np.empty(0, np.uint8)


@dataclass(frozen=True)
class _Field:
    name: str
    column: int
    row_bytes: int
    item_bytes: int
    chunk_rows: int
    codec: Codec
    seed: int


class Compression:
    """The compressed fields of a folder.

    Args:
        folder: The folder.
        item_bytes: Bytes of a number of each field, by name.
    """

    def __init__(self, folder: StoreFolder, item_bytes: dict[str, int]) -> None:
        self._columns = folder.columns
        self._fields: dict[int, _Field] = {}
        identity = identity_of(folder.header)
        steps = [c for c in folder.header["columns"] if c["group"] == "steps"]
        for number, column in enumerate(steps):
            codec = Codec.parse(column["codec"])
            if codec is not None:
                name = column["name"]
                self._fields[number] = _Field(
                    name,
                    number,
                    column["row_bytes"],
                    item_bytes[name],
                    column["chunk_rows"],
                    codec,
                    _native.crc32c(file_name(name).encode(), identity) if identity else 0,
                )
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._stopped = False
        self._files: OrderedDict[Path, EncodedChunk] = OrderedDict()
        self._looked_at = 0  # rows below have been put away, or will be when their chunk is full

    def compress(self, buffer: OpenFolder) -> None:
        """Compress the chunks that have become full and are on the disk."""
        engine = buffer._engine
        top = engine.steps_top
        for field in self._fields.values():
            if top // field.chunk_rows == self._looked_at // field.chunk_rows:
                continue
            for chunk in engine.compressible(field.column):
                rows = buffer.gather_ranges(
                    [chunk * field.chunk_rows], [field.chunk_rows], field.chunk_rows, [field.name]
                )[field.name]
                data = encode_chunk(
                    rows.reshape(-1).view(np.uint8),
                    chunk=chunk,
                    row_bytes=field.row_bytes,
                    item_bytes=field.item_bytes,
                    codec=field.codec,
                    seed=field.seed,
                )
                with self._writing:
                    if self._stopped:
                        return
                    try:
                        replace_file(self._path(field, chunk), data)
                    except OSError:  # a full disk: the rows are as good as they are for now
                        return
                    engine.adopt_coded(field.column, chunk)
        self._looked_at = top

    def stop(self) -> None:
        """Write nothing more: the folder is about to be another."""
        with self._writing:
            self._stopped = True

    def decompress(
        self, engine: _native.EpisodeEngine, places: Sequence[tuple[int, int, int]]
    ) -> None:
        """Bring blocks, each of a column and a chunk, into memory.

        Block -1 stands for a chunk that is wanted, too, and must stay there.

        Raises:
            SharpwaveIOError: One of them is damaged.
        """
        blocks: list[Any] = []
        for column, chunk, block in places:
            rows = _NO_ROWS if block < 0 else self._read(self._fields[column], chunk, block)
            blocks.append((column, chunk, block, rows))
        engine.install(blocks)

    def _read(self, field: _Field, chunk: int, block: int) -> Array:
        try:
            with self._lock:
                return self._open(field, chunk).read_block(block)
        except SharpwaveIOError as error:
            if error.errno != errno.ENOENT:
                raise
            raise IndexError(f"rows of field {field.name!r} are gone") from None

    def damaged(self) -> Iterator[tuple[Path, str]]:
        """Compressed chunks that cannot be read, and why."""
        for field in self._fields.values():
            names = f"{glob.escape(file_name(field.name))}.*{SUFFIX}"
            for path in sorted(self._columns.glob(names)):
                number = path.name.removesuffix(SUFFIX).rpartition(".")[2]
                if path != self._path(field, int(number) if number.isdecimal() else 0):
                    continue  # of a field whose name begins so
                problem = _problem(path, field, int(number))
                if problem is not None:
                    yield path, problem

    def set_aside_damaged(self) -> None:
        """Rename damaged chunks, so that they are missing."""
        for path, _ in list(self.damaged()):
            path.rename(path.with_name(path.name + ".damaged"))

    def _path(self, field: _Field, chunk: int) -> Path:
        return self._columns / f"{file_name(field.name)}.{chunk:012}{SUFFIX}"

    def _open(self, field: _Field, chunk: int) -> EncodedChunk:
        path = self._path(field, chunk)
        found = self._files.pop(path, None) or _opened(path, field, chunk)
        self._files[path] = found
        if len(self._files) > _OPEN_FILES:
            self._files.popitem(last=False)
        return found


def _opened(path: Path, field: _Field, chunk: int) -> EncodedChunk:
    return EncodedChunk(
        path,
        chunk=chunk,
        n_rows=field.chunk_rows,
        row_bytes=field.row_bytes,
        item_bytes=field.item_bytes,
        seed=field.seed,
    )


def _problem(path: Path, field: _Field, chunk: int) -> str | None:
    try:
        encoded = _opened(path, field, chunk)
        for block in range(encoded.n_blocks):
            encoded.read_block(block)
    except SharpwaveIOError as error:
        return str(error)
    return None


def as_codecs(codecs: Any, fields: Iterable[str]) -> dict[str, str]:
    """The names of codecs by field.

    Raises:
        TypeError, ValueError: For fields or codecs that there are not.
    """
    names = list(fields)
    if codecs is None or isinstance(codecs, str):
        codecs = {} if codecs is None else dict.fromkeys(names, codecs)
    if not isinstance(codecs, Mapping):
        raise TypeError(f"codecs must be a dict by field, or a name, got {type(codecs).__name__}")
    for name, codec in codecs.items():
        if name not in names:
            raise ValueError(f"codecs must name fields of steps, got {name!r}")
        Codec.parse(codec)
    return {name: codec for name, codec in codecs.items() if Codec.parse(codec) is not None}


def compression_of(folder: StoreFolder, item_bytes: dict[str, int]) -> Compression | None:
    """The compressed fields of a folder, None when it has none."""
    coded = any(column.get("codec") for column in folder.header["columns"])
    return Compression(folder, item_bytes) if coded else None
