"""Buffers in folders and in pickles.

A save is a folder: `commit.json` names one generation of column files, with a checksum for every
    piece of them.
It is written last and renamed into place, so the folder holds the old state or the new one, never a
mixture. Nothing in it is code.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from sharpwave.buffers.schema import Schema
from sharpwave.errors import SharpwaveIOError
from sharpwave.types import Array

if TYPE_CHECKING:
    from sharpwave.buffers.replay import ReplayBuffer

FORMAT = "sharpwave.replay"
VERSION = 1
PIECE_BYTES = 4 << 20

BufferT = TypeVar("BufferT", bound="ReplayBuffer")


def save(buffer: ReplayBuffer, path: str | os.PathLike[str]) -> None:
    """Write `buffer` to the folder `path` (see `ReplayBuffer.save`)."""
    folder = Path(path)
    try:
        _check_target(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder):
            generation = f"data-{uuid.uuid4().hex}"
            (folder / generation).mkdir()
            try:
                commit = _write_generation(buffer, folder / generation)
                _commit(folder, {**commit, "data": generation})
            except BaseException:
                shutil.rmtree(folder / generation, ignore_errors=True)
                raise
            for old in folder.glob("data-*"):
                if old.name != generation:
                    shutil.rmtree(old, ignore_errors=True)
    except SharpwaveIOError:
        raise
    except OSError as error:
        raise SharpwaveIOError(error.errno, f"cannot save to {folder}: {error}") from error


def load(cls: type[BufferT], path: str | os.PathLike[str]) -> BufferT:
    """Read the buffer that `save` wrote (see `ReplayBuffer.load`)."""
    folder = Path(path)
    commit = _read_commit(folder)
    if commit["class"] != cls.__name__:
        raise SharpwaveIOError(f"{folder} holds a {commit['class']}, not a {cls.__name__}")
    buffer = _empty(cls, commit)
    data = folder / str(commit["data"])
    for name, first, count, memory in _pieces(buffer, commit["heads"]):
        entry = commit["files"].get(name)
        index = entry["cursor"] = entry.get("cursor", -1) + 1 if entry is not None else 0
        if entry is None or index >= len(entry["checksums"]):
            raise SharpwaveIOError(f"{folder} lacks a part of {name}")
        _read_piece(data / name, entry, index, memory)
        buffer._engine.write_column(entry["field"], first, count, memory)
    _restore(
        buffer,
        commit,
        {name: _read_array(data, name, entry) for name, entry in commit["arrays"].items()},
    )
    return buffer


def to_memory(buffer: ReplayBuffer) -> dict[str, Any]:
    """The state of a buffer as plain values and arrays, for pickling."""
    with _locked_rows(buffer):
        columns: dict[str, list[bytes]] = {}
        for name, first, count, memory in _pieces(buffer, buffer._engine.heads()):
            buffer._engine.read_column(_field_of(name), first, count, memory)
            columns.setdefault(name, []).append(memory.tobytes())
        description, arrays = _describe(buffer)
        return {**description, "columns": columns, "values": arrays}


def rebuild(cls: type[BufferT], state: dict[str, Any]) -> BufferT:
    """The buffer whose state `to_memory` gave."""
    buffer = _empty(cls, state)
    taken: dict[str, int] = {}
    for name, first, count, _ in _pieces(buffer, state["heads"]):
        piece = state["columns"][name][taken.get(name, 0)]
        taken[name] = taken.get(name, 0) + 1
        memory = np.frombuffer(bytearray(piece), np.uint8)
        buffer._engine.write_column(_field_of(name), first, count, memory)
    _restore(buffer, state, state["values"])
    return buffer


def _describe(buffer: ReplayBuffer) -> tuple[dict[str, Any], dict[str, Array]]:
    """What is small enough for JSON, and the marks of the streams and priorities as arrays."""
    from sharpwave import __version__

    engine = buffer._engine
    description = {
        "format": FORMAT,
        "version": VERSION,
        "library": __version__,
        "class": type(buffer).__name__,
        "schema": buffer.schema.to_json(),
        "options": buffer._options,
        "heads": engine.heads(),
        "counters": engine.counters(),
    }
    arrays = {f"marks-{i}": bits for i, bits in enumerate(engine.bitmaps())}
    if buffer._options["priorities"] is not None:
        saved = engine.save_priorities()
        arrays.update({f"priorities-{key}": saved.pop(key) for key in ("leaves", "raw", "sorted")})
        description["scalars"] = saved
    return description, arrays


def _empty(cls: type[BufferT], state: dict[str, Any]) -> BufferT:
    """A buffer of the saved kind without content."""
    options = dict(state["options"])
    shortcut = options.pop("shortcut")
    schema = Schema.from_json(state["schema"])
    if options["priorities"] is not None:
        options["priorities"] = tuple(options["priorities"])
    buffer = cls.__new__(cls)
    dims: tuple[int | None, int | None] = (None, None)
    fields: Schema | None = schema
    if shortcut:
        by_name = {leaf.name: leaf.field for leaf in schema.leaves}
        dims = (by_name["obs"].shape[0], by_name["action"].shape[0])
        fields = None
    buffer._make(options.pop("capacity"), *dims, fields=fields, **options)
    return buffer


def _restore(buffer: ReplayBuffer, state: dict[str, Any], arrays: dict[str, Array]) -> None:
    engine = buffer._engine
    marks = [arrays[f"marks-{i}"] for i in range(len(engine.bitmaps()))]
    engine.restore_heads([tuple(head) for head in state["heads"]], marks)
    engine.restore_counters(state["counters"])
    if buffer._options["priorities"] is not None:
        saved: dict[str, Any] = dict(state["scalars"])
        saved.update({key: arrays[f"priorities-{key}"] for key in ("leaves", "raw", "sorted")})
        engine.restore_priorities(**saved)


def _field_of(name: str) -> int:
    return int(name.split("-", 1)[0])


def _pieces(buffer: ReplayBuffer, heads: list[Any]) -> Iterator[tuple[str, int, int, Array]]:
    """(file, first slot, slots, memory) for every piece of every stored column that is in use."""
    engine = buffer._engine
    slots = engine.slots_per_stream
    for field, leaf in enumerate(buffer.schema.leaves):
        width = engine.column_bytes(field)
        if width == 0:
            continue
        step = max(1, PIECE_BYTES // width)
        for stream, (_, top, _, _) in enumerate(heads):
            begin, end = stream * slots, stream * slots + min(top, slots)
            for first in range(begin, end, step):
                count = min(step, end - first)
                yield f"{field}-{leaf.name}.bin", first, count, np.empty(count * width, np.uint8)


def _write_generation(buffer: ReplayBuffer, data: Path) -> dict[str, Any]:
    """Write all files of a save; the contents of its commit."""
    files: dict[str, Any] = {}
    with _locked_rows(buffer), contextlib.ExitStack() as stack:
        handles: dict[str, Any] = {}
        for name, first, count, memory in _pieces(buffer, buffer._engine.heads()):
            field = _field_of(name)
            if name not in handles:
                handles[name] = stack.enter_context((data / name).open("wb"))
                files[name] = {"field": field, "offsets": [], "checksums": []}
            buffer._engine.read_column(field, first, count, memory)
            files[name]["offsets"].append(handles[name].tell())
            files[name]["checksums"].append(zlib.crc32(memory.data))
            handles[name].write(memory)
        description, arrays = _describe(buffer)
        for handle in handles.values():
            _sync(handle)
    entries = {}
    for name, array in arrays.items():
        with (data / name).open("wb") as handle:
            handle.write(array.tobytes())
            _sync(handle)
        entries[name] = {
            "dtype": array.dtype.name,
            "length": len(array),
            "checksum": zlib.crc32(array.data),
        }
    _sync_folder(data)
    return {**description, "files": files, "arrays": entries}


def _commit(folder: Path, commit: dict[str, Any]) -> None:
    text = json.dumps(commit, indent=1)
    with (folder / "commit.tmp").open("w", encoding="utf-8") as handle:
        handle.write(f"{zlib.crc32(text.encode()):08x}\n{text}")
        _sync(handle)
    (folder / "commit.tmp").rename(folder / "commit.json")
    _sync_folder(folder)


def _read_commit(folder: Path) -> dict[str, Any]:
    try:
        checksum, text = (folder / "commit.json").read_text(encoding="utf-8").split("\n", 1)
        intact = int(checksum, 16) == zlib.crc32(text.encode())
    except FileNotFoundError:
        raise SharpwaveIOError(f"{folder} holds no complete save of a buffer") from None
    except (ValueError, UnicodeDecodeError):
        intact = False
    except OSError as error:
        raise SharpwaveIOError(error.errno, f"cannot read {folder}: {error}") from error
    if not intact:
        raise SharpwaveIOError(f"{folder / 'commit.json'} is corrupt")
    commit: dict[str, Any] = json.loads(text)
    if commit.get("format") != FORMAT or commit.get("version") != VERSION:
        raise SharpwaveIOError(
            f"{folder} must be {FORMAT} version {VERSION}, "
            f"got {commit.get('format')} version {commit.get('version')}"
        )
    return commit


def _read_piece(path: Path, entry: dict[str, Any], index: int, memory: Array) -> None:
    try:
        with path.open("rb") as handle:
            handle.seek(entry["offsets"][index])
            read = handle.readinto(memory.data)
    except OSError as error:
        raise SharpwaveIOError(error.errno, f"cannot read {path}: {error}") from error
    if read != len(memory) or zlib.crc32(memory.data) != entry["checksums"][index]:
        raise SharpwaveIOError(f"{path} is corrupt in piece {index}")


def _read_array(data: Path, name: str, entry: dict[str, Any]) -> Array:
    try:
        raw = (data / name).read_bytes()
    except OSError as error:
        raise SharpwaveIOError(error.errno, f"cannot read {data / name}: {error}") from error
    array = np.frombuffer(bytearray(raw), entry["dtype"])
    if len(array) != entry["length"] or zlib.crc32(array.data) != entry["checksum"]:
        raise SharpwaveIOError(f"{data / name} is corrupt")
    return array


def _check_target(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise SharpwaveIOError(f"path must be a folder, got the file {folder}")
    names = {entry.name for entry in folder.iterdir()}
    foreign = {
        n
        for n in names
        if n not in {"commit.json", "commit.tmp", ".lock"} and not n.startswith("data-")
    }
    if foreign:
        raise SharpwaveIOError(
            f"{folder} holds something else than a saved buffer: {sorted(foreign)[0]}"
        )


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """One saver at a time; the system lets go of the lock when a process dies."""
    with (folder / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _locked_rows(buffer: ReplayBuffer) -> Iterator[None]:
    buffer._engine.lock_rows()
    try:
        yield
    finally:
        buffer._engine.unlock_rows()


def _sync(handle: Any) -> None:
    handle.flush()
    os.fsync(handle.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
