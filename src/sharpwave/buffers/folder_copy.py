"""Copies of a replay buffer's folder."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from sharpwave.errors import SharpwaveIOError
from sharpwave.files import make_folder, sync_folder, temporary_beside

if TYPE_CHECKING:
    from sharpwave.buffers.mmap import MmapReplayBuffer

_TRAILER = 4096  # what follows the rows in a chunk file
_PIECE = 4 << 20


def copy(buffer: MmapReplayBuffer, path: Path) -> None:
    """Copy the folder of the buffer, which writes to it, to `path` (see `MmapReplayBuffer.save`).

    The copy gets its name when it is complete.
    """
    engine = buffer._engine
    if buffer.read_only:
        raise SharpwaveIOError(
            errno.EROFS, f"{buffer.path} is open read-only; its writer can save it"
        )
    if os.path.lexists(path):
        raise SharpwaveIOError(errno.EEXIST, f"there is something at {path} already")
    buffer.flush()
    engine = buffer._engine
    try:
        make_folder(path.parent)
        with temporary_beside(path, folder=True) as beside:
            temporary = beside / path.name
            (temporary / "columns").mkdir(parents=True)
            engine.lock_rows()
            try:
                _copy_columns(buffer, temporary)
                for name in ("state", "marks", "priorities", "fresh.json", "header.json"):
                    if (buffer.path / name).exists():
                        _copy_part(buffer.path / name, temporary / name, None)
            finally:
                engine.unlock_rows()
            for folder in (temporary / "columns", temporary):
                sync_folder(folder)
            temporary.rename(path)
            sync_folder(path.parent)
    except OSError as error:
        raise SharpwaveIOError(error.errno, f"cannot save to {path}: {error}") from error


def _copy_columns(buffer: MmapReplayBuffer, target: Path) -> None:
    """Copy the chunks in use, and of the newest ones only what is used."""
    columns = buffer._folder.header["columns"]
    lead = max(leaf.field.stack for leaf in buffer.schema.leaves)
    for column, (floor, top, _, _) in zip(columns, buffer._engine.heads(), strict=True):
        rows, width = column["chunk_rows"], column["row_bytes"]
        for chunk in range(max(floor - lead, 0) // rows, -(-top // rows)):
            name = f"{column['name']}.{chunk:012}"
            used = min(top - chunk * rows, rows) * width
            _copy_part(
                buffer.path / "columns" / name, target / "columns" / name, (used, rows * width)
            )


def _copy_part(source: Path, target: Path, rows: tuple[int, int] | None) -> None:
    """Copy a file, or of a chunk file the bytes in use, of so many, and the trailer."""
    with source.open("rb") as reader, target.open("wb") as writer:
        if rows is None:
            shutil.copyfileobj(reader, writer, _PIECE)
        else:
            used, whole = rows
            while used > 0:
                piece = reader.read(min(used, _PIECE))
                writer.write(piece)
                used -= len(piece)
            reader.seek(whole)
            writer.seek(whole)
            writer.write(reader.read(_TRAILER))
        writer.flush()
        os.fsync(writer.fileno())
