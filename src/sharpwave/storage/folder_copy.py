"""Copies of a store's folder while its writer has it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from sharpwave import _native
from sharpwave.errors import SharpwaveIOError
from sharpwave.storage.files import make_folder, sync_folder, temporary_beside
from sharpwave.storage.folder import StoreFolder

__all__ = ["copy_store"]

_TRAILER = 4096  # what follows the rows in a chunk file
_PIECE = 4 << 20


def copy_store(folder: StoreFolder, engine: _native.Engine, lead: int, path: Path) -> None:
    """Copy a store, whose rows are on disk, to `path`, which gets its name when it is complete.

    Args:
        folder: Held by the writer.
        engine: Its rows; they are locked meanwhile.
        lead: Rows before the oldest step that belong to it, as the frames of a stack.
        path: Where there is nothing yet.

    Raises:
        SharpwaveIOError: It cannot be written.
    """
    try:
        make_folder(path.parent)
        with temporary_beside(path, folder=True) as beside:
            temporary = beside / path.name
            (temporary / "columns").mkdir(parents=True)
            engine.lock_rows()
            try:
                _copy_columns(folder, engine, lead, temporary)
                for name in ("state", "marks", "priorities", "fresh.json", "header.json"):
                    if (folder.path / name).exists():
                        _copy_part(folder.path / name, temporary / name, None)
            finally:
                engine.unlock_rows()
            for made in (temporary / "columns", temporary):
                sync_folder(made)
            temporary.rename(path)
            sync_folder(path.parent)
    except OSError as error:
        raise SharpwaveIOError(error.errno, f"cannot save to {path}: {error}") from error


def _copy_columns(folder: StoreFolder, engine: _native.Engine, lead: int, target: Path) -> None:
    """Copy the chunks in use, and of the newest ones only what is used."""
    columns = folder.header["columns"]
    for column, (floor, top, _, _) in zip(columns, engine.heads(), strict=True):
        rows, width = column["chunk_rows"], column["row_bytes"]
        for chunk in range(max(floor - lead, 0) // rows, -(-top // rows)):
            name = f"{column['name']}.{chunk:012}"
            used = min(top - chunk * rows, rows) * width
            _copy_part(
                folder.path / "columns" / name, target / "columns" / name, (used, rows * width)
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
