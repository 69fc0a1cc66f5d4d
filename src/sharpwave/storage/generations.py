"""Saves in folders.

A save is a folder: `commit.json` names one generation of files, with the size and the checksums of
every file in it. It is written last and renamed into place, so the folder holds the old state or
the new one, never a mixture. Nothing in it is code, and nothing outside of it is opened.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import stat
import uuid
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

from sharpwave.errors import SharpwaveIOError
from sharpwave.storage.files import sync_folder

__all__ = ["FORMAT", "VERSION", "Piece", "load", "save"]

FORMAT = "sharpwave.replay"
VERSION = 1

Saved = TypeVar("Saved")
Piece = Callable[[str, memoryview], None]
"""Takes, or fills, the next piece of the file of this name."""

_GENERATION = re.compile(r"data-[0-9a-f]{32}")
_SAVING = "sharpwave saves to "
"""Begins what the lock says while a save is on its way: the generation that it writes."""


def save(path: str | os.PathLike[str], dump: Callable[[Piece], dict[str, Any]]) -> None:
    """Write a save to the folder `path`.

    Args:
        path: The folder; one that holds something else than a save is refused.
        dump: Hands all pieces to the function that it is given, and returns what is small enough
            for JSON: `format`, `version`, `class` and whatever it wants to read again.

    Raises:
        SharpwaveIOError: The folder cannot be saved to.
    """
    folder = Path(path)
    try:
        _check_target(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder, fcntl.LOCK_EX) as lock:
            _check_target(folder)  # nobody else saves any more
            generation = f"data-{uuid.uuid4().hex}"
            _note(lock, generation)
            (folder / generation).mkdir()
            try:
                _write_commit(folder, _write_generation(dump, folder / generation))
            except BaseException:
                shutil.rmtree(folder / generation, ignore_errors=True)
                raise
            (folder / "commit.tmp").rename(folder / "commit.json")
            sync_folder(folder)
            for old in folder.iterdir():
                if _GENERATION.fullmatch(old.name) and old.name != generation:
                    shutil.rmtree(old, ignore_errors=True)
    except SharpwaveIOError:
        raise
    except OSError as error:
        raise SharpwaveIOError(error.errno, f"cannot save to {folder}: {error}") from error


def load(
    path: str | os.PathLike[str], kind: str, fill: Callable[[dict[str, Any], Piece], Saved]
) -> Saved:
    """Read what `save` wrote.

    Args:
        path: The folder.
        kind: The `class` that it must hold.
        fill: Makes it of what `dump` returned and of the pieces, in the order they were dumped in.

    Raises:
        SharpwaveIOError: The folder holds no whole save, or one of another class.
    """
    folder = Path(path)
    with _lock(folder, fcntl.LOCK_SH):
        commit = _read_commit(folder)
        if commit.get("class") != kind:
            raise SharpwaveIOError(f"{folder} holds a {commit.get('class')}, not a {kind}")
        try:
            return _read_generation(folder, commit, fill)
        except SharpwaveIOError:
            raise
        except MemoryError as error:
            raise SharpwaveIOError(
                errno.ENOMEM,
                f"{folder / 'commit.json'} asks for more memory than there is: {error}",
            ) from error
        except Exception as error:  # whatever a commit that `save` did not write leads to
            raise SharpwaveIOError(f"{folder / 'commit.json'} makes no sense: {error}") from error


def _write_generation(dump: Callable[[Piece], dict[str, Any]], data: Path) -> dict[str, Any]:
    """Write all files of a save; the contents of its commit."""
    files: dict[str, Any] = {}
    handles: dict[str, IO[bytes]] = {}
    with contextlib.ExitStack() as stack:

        def write(name: str, piece: memoryview) -> None:
            if name not in handles:
                handles[name] = stack.enter_context((data / name).open("wb"))
                files[name] = {"bytes": 0, "checksums": []}
            handles[name].write(piece)
            files[name]["bytes"] += len(piece)
            files[name]["checksums"].append(zlib.crc32(piece))

        description = dump(write)
        for handle in handles.values():
            _sync(handle)
    sync_folder(data)
    return {**description, "data": data.name, "files": files}


def _read_generation(
    folder: Path, commit: dict[str, Any], fill: Callable[[dict[str, Any], Piece], Saved]
) -> Saved:
    """The object that a commit describes."""
    data = folder / commit["data"]
    if not _GENERATION.fullmatch(data.name) or data.parent != folder or data.is_symlink():
        raise ValueError(f"data must name a generation, got {commit['data']!r}")
    opened: dict[str, tuple[IO[bytes], Iterator[int]]] = {}
    with contextlib.ExitStack() as stack:

        def read(name: str, piece: memoryview) -> None:
            if name not in opened:
                entry = commit["files"][name]
                handle = stack.enter_context(_open(data / name, entry["bytes"]))
                opened[name] = handle, iter(entry["checksums"])
            handle, checksums = opened[name]
            if handle.readinto(piece) != len(piece) or zlib.crc32(piece) != next(checksums, None):  # type: ignore[attr-defined]
                raise SharpwaveIOError(f"{data / name} is corrupt")

        return fill(commit, read)


def _open(path: Path, size: int) -> IO[bytes]:
    try:
        # Links and pipes are not what `save` wrote, and a pipe would be waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise SharpwaveIOError(error.errno, f"cannot read {path}: {error}") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size != size:
        os.close(descriptor)
        raise SharpwaveIOError(f"{path} must be a file of {size} bytes, got {status.st_size}")
    return os.fdopen(descriptor, "rb")


def _write_commit(folder: Path, commit: dict[str, Any]) -> None:
    text = json.dumps(commit, indent=1)
    with (folder / "commit.tmp").open("wb") as handle:
        handle.write(f"{zlib.crc32(text.encode()):08x}\n{text}".encode())
        _sync(handle)


def _read_commit(folder: Path) -> dict[str, Any]:
    path = folder / "commit.json"
    try:
        if path.exists() and not path.is_file():
            raise SharpwaveIOError(f"{path} must be a file")
        checksum, text = path.read_bytes().split(b"\n", 1)
        commit = json.loads(text) if int(checksum, 16) == zlib.crc32(text) else None
    except (FileNotFoundError, NotADirectoryError):
        raise SharpwaveIOError(
            errno.ENOENT, f"{folder} holds no complete save of a buffer"
        ) from None
    except (ValueError, RecursionError):
        commit = None
    except OSError as error:
        raise SharpwaveIOError(error.errno, f"cannot read {path}: {error}") from error
    if not isinstance(commit, dict):
        raise SharpwaveIOError(f"{path} is corrupt")
    if commit.get("format") != FORMAT or commit.get("version") != VERSION:
        raise SharpwaveIOError(
            f"{folder} must be {FORMAT} version {VERSION}, "
            f"got {commit.get('format')} version {commit.get('version')}"
        )
    return commit


def _check_target(folder: Path) -> None:
    """Raise unless the folder may be saved to: it is empty, or a commit says that it is ours.

    Without a commit that is whole only what a first save left that was killed is ours: the lock
    names it.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise SharpwaveIOError(errno.EEXIST, f"path must be a folder, got the file {folder}")
    names = {entry.name for entry in folder.iterdir()}
    ours = {".lock", "commit.json", "commit.tmp"}
    if "commit.json" in names:
        try:
            _read_commit(folder)
        except SharpwaveIOError as error:
            raise SharpwaveIOError(
                f"{folder} cannot be saved to, nothing was changed: {error}; without a whole "
                "commit.json nothing says that the folder holds a saved buffer"
            ) from error
        foreign = {name for name in names - ours if not _GENERATION.fullmatch(name)}
    else:
        left = _noted(folder / ".lock")
        foreign = names - ({".lock", "commit.tmp", left} if left is not None else {".lock"})
        if left is None and ".lock" in names and (folder / ".lock").stat().st_size > 0:
            foreign.add(".lock")
    if foreign:
        raise SharpwaveIOError(
            f"{folder} holds something else than a saved buffer: {sorted(foreign)[0]}, which is "
            "never overwritten"
        )


def _note(lock: int, generation: str) -> None:
    """Let the lock say which generation is being written, so that it is known for ours."""
    os.pwrite(lock, f"{_SAVING}{generation}\n".encode(), 0)
    os.fsync(lock)


def _noted(path: Path) -> str | None:
    """The generation that a lock names."""
    try:
        if path.is_symlink() or path.stat().st_size > 1000:
            return None
        text = path.read_text(encoding="ascii")
    except (OSError, ValueError):
        return None
    name = text.removeprefix(_SAVING).rstrip("\n")
    return name if text.startswith(_SAVING) and _GENERATION.fullmatch(name) else None


@contextlib.contextmanager
def _lock(folder: Path, operation: int) -> Iterator[int]:
    """One saver at a time, loaders beside each other; a process that dies lets go."""
    flags = os.O_RDWR | os.O_CREAT if operation == fcntl.LOCK_EX else os.O_RDONLY
    try:
        descriptor = os.open(folder / ".lock", flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError:
        if operation == fcntl.LOCK_EX:
            raise
        yield -1  # a copy without its lock, where nobody saves
        return
    try:
        fcntl.flock(descriptor, operation)
        yield descriptor
    finally:
        os.close(descriptor)


def _sync(handle: IO[bytes]) -> None:
    handle.flush()
    os.fsync(handle.fileno())
