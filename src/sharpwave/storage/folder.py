"""Folders of the durable store: what is in them, who may write, and what must not be touched.

    header.json   what the folder holds, as JSON with a checksum; written last and never changed
    state         what is committed (64-bit words, see `_native`), and a copy of the header
    lock          held by the one writer
    columns/      rows, in chunk files `name.000000000012`
    dataset.json  how the content was made, where somebody wrote that down
    unfinished    while the folder is being made or removed: what is in it does not count

A folder is ours when its header says so, or while it is unfinished. Whatever else lies in it is
left alone, and a folder that is neither ours nor empty is never touched.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sharpwave import _native
from sharpwave.errors import SharpwaveIOError
from sharpwave.storage import header as headers
from sharpwave.storage.files import make_folder, remove_abandoned, sync_folder
from sharpwave.storage.handles import Handles
from sharpwave.storage.header import InvalidHeaderError, is_store, read_header

__all__ = ["StoreFolder", "file_name", "is_store", "read_header", "writer_of"]

UNFINISHED = "unfinished"
_UNFINISHED_TEXT = b"A store of sharpwave is being made or removed here: this holds nothing yet.\n"
_FILES = (
    *("state", "marks", "priorities", "update.journal", "dataset.json"),
    *("fresh.json", "fresh.json.tmp"),
)
_FOLDERS = ("columns", "staging")
_CHUNK = re.compile(r".+\.\d{12,}(\.coded)?(\.damaged)?", re.DOTALL)


def file_name(column: str) -> str:
    """A column's name as the name of its files.

    Example:
        >>> file_name("obs.image/left")
        'obs.image%2Fleft'
    """
    return quote(column, safe=" ")


class StoreFolder:
    """A folder of the durable store, with the lock of its writer.

    Attributes:
        path: Absolute path of the folder.
        header: Entries of `header.json`, from its copy where it is damaged.
        repairs: Damage of the header that is repaired when the folder is locked.
    """

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.path = path.absolute()
        self.header = header
        self.repairs: list[str] = []
        self._lock: _native.WriterLock | None = None

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        kind: str,
        description: Mapping[str, Any],
        n_words: int,
        *,
        overwrite: bool = False,
    ) -> StoreFolder:
        """Make a folder, with its lock taken.

        Args:
            path: Where; folders above it are made.
            kind: Kind of the content, such as "episodes".
            description: More entries for the header.
            n_words: Words of the commit state.
            overwrite: Replace a folder of ours that no other process writes to. Buffers of this
                process that have it open end.

        Raises:
            SharpwaveIOError: The path holds something else, or cannot be written.
            FolderLockedError: Somebody writes to the folder.
        """
        folder = cls(Path(path), {})
        handles = Handles.of(folder.path)
        try:
            with handles.lock:
                _check_free(folder.path, overwrite=overwrite)
                make_folder(folder.path)
                if overwrite:
                    handles.retire_writer(folder.path)
                folder.lock()
                _check_free(folder.path, overwrite=overwrite)  # nobody can change it any more
                handles.retire(folder.path)
                _begin(folder.path)
                _remove_content(folder.path)
                folder.columns.mkdir(exist_ok=not folder.columns.is_symlink())
                _native.create_commit_state(os.fspath(folder.state), n_words)
                folder.header = headers.write_header(folder.path, kind, description)
                (folder.path / UNFINISHED).unlink()
        except SharpwaveIOError:
            folder.unlock()
            raise
        except OSError as error:
            folder.unlock()
            raise SharpwaveIOError(
                error.errno, f"cannot make {error.filename or folder.path}: {error.strerror}"
            ) from error
        return folder

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], kind: str | None = None, *, repair: bool = False
    ) -> StoreFolder:
        """An existing folder, without its lock. Nothing is written.

        Args:
            path: Path of the folder.
            kind: Kind of content that it must have.
            repair: Take the copy of a header that is damaged or missing; `lock` puts it in place.

        Raises:
            SharpwaveIOError: There is none, it is of another kind, or its header is damaged.
        """
        repairs = []
        try:
            header = read_header(path)
        except InvalidHeaderError as error:
            if not repair or not Path(path).is_dir():
                raise
            header = headers.rebuilt_header(path)
            why = str(error.strerror or error).partition(";")[0]
            repairs.append(f"{why}: taken from its copy")
        folder = cls(Path(path), header)
        folder.repairs = repairs
        if kind is not None and folder.kind != kind:
            raise SharpwaveIOError(f"{folder.path} holds {folder.kind}, not {kind}")
        return folder

    @property
    def kind(self) -> str:
        """Kind of the content, such as "replay" or "episodes"."""
        return str(self.header["kind"])

    @property
    def state(self) -> Path:
        """The file of the commit words."""
        return self.path / "state"

    @property
    def columns(self) -> Path:
        """The folder of the chunk files."""
        return self.path / "columns"

    @property
    def is_locked(self) -> bool:
        """True if this process holds the writer's lock."""
        return self._lock is not None and self._lock.is_mine

    def lock(self) -> None:
        """Take the writer's lock.

        Raises:
            FolderLockedError: Somebody has it.
        """
        if self.is_locked:
            return
        self._lock = _native.WriterLock(os.fspath(self.path / "lock"))
        if not self.header:  # it is being made
            return
        try:
            if self.repairs:
                headers.restore_header(self.path, self.header)
            (self.path / UNFINISHED).unlink(missing_ok=True)
            for place in (self.path, self.columns):
                remove_abandoned(place)
        except OSError as error:
            self.unlock()
            if isinstance(error, SharpwaveIOError):
                raise
            raise SharpwaveIOError(error.errno, f"cannot write to {self.path}: {error}") from error

    def keep_copy(self) -> None:
        """Give a folder that was made without one the copy of its header. Needs the lock."""
        headers.keep_copy(self.path, self.header)

    def unlock(self) -> None:
        """Let the writer's lock go."""
        self._lock = None

    def delete(self) -> None:
        """Remove all that is ours, and the folder if nothing else is in it. Needs the lock."""
        if not self.is_locked:
            raise SharpwaveIOError(f"{self.path} must be locked before it is deleted")
        try:
            _begin(self.path)
            _remove_content(self.path)
            (self.path / "lock").unlink(missing_ok=True)
            (self.path / UNFINISHED).unlink()
            self.unlock()
            with contextlib.suppress(OSError):  # something else is in it
                self.path.rmdir()
        except OSError as error:
            raise SharpwaveIOError(error.errno, f"cannot remove {self.path}: {error}") from error


def writer_of(path: str | os.PathLike[str]) -> int:
    """The process that writes to the folder, 0 when nobody does."""
    return _native.writer_of(os.fspath(Path(path) / "lock"))


def _check_free(path: Path, *, overwrite: bool) -> None:
    """Raise unless the path may become a store: nothing is there, or what is there is ours."""
    if path.is_symlink() and not path.exists():
        raise SharpwaveIOError(f"{path} is a link to nothing")
    if not path.exists():
        return
    if not path.is_dir():
        raise SharpwaveIOError(errno.EEXIST, f"{path} is a file; a folder is needed")
    file = path / headers.FILE
    try:
        read_header(path)
    except InvalidHeaderError as error:
        if _is_unfinished(path):
            return
        something = _something(path)
        if something is not None:
            raise SharpwaveIOError(
                errno.EEXIST,
                f"{path} is never overwritten, and nothing was changed: it is not empty, but holds "
                f"something else than a store ({something!r}), or one without a valid header: "
                f"{error.strerror or error}",
            ) from None
        return
    if not overwrite:
        raise SharpwaveIOError(
            errno.EEXIST, f"{path} holds a store already; open it, or pass overwrite=True"
        )
    if file.is_symlink():
        raise SharpwaveIOError(
            errno.EEXIST, f"{file} is a link, which does not say that {path} may be overwritten"
        )


def _is_unfinished(path: Path) -> bool:
    """Return whether we began to make or to remove the folder, and did not come to the end."""
    marker = path / UNFINISHED
    if not _is_own_file(marker) or os.path.lexists(path / headers.FILE):
        return False
    text = marker.read_bytes()
    return text == _UNFINISHED_TEXT or headers.is_header(path, text)


def _something(path: Path) -> str | None:
    """The first entry of a folder that may be of worth: all but what a creation begins with."""
    for entry in sorted(path.iterdir()):
        if entry.is_symlink():
            return entry.name
        if entry.is_file():
            size = entry.stat().st_size
            if entry.name == "lock" and size == 0:
                continue
            if entry.name == UNFINISHED and size <= len(_UNFINISHED_TEXT):
                text = entry.read_bytes()
                if text in (_UNFINISHED_TEXT[: len(text)], bytes(len(text))):
                    continue
        elif entry.name in _FOLDERS and entry.is_dir() and not any(entry.iterdir()):
            continue
        return entry.name
    return None


def _is_own_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _begin(folder: Path) -> None:
    """Say, so that it outlives a kill, that what is in a folder of ours does not count any more.

    The header itself says it where there is one: no space is needed then.
    """
    header, marker = folder / headers.FILE, folder / UNFINISHED
    if os.path.lexists(header):
        header.replace(marker)
    elif not _is_unfinished(folder):
        with marker.open("wb", buffering=0) as file:
            try:
                file.write(_UNFINISHED_TEXT)  # in one call: a kill leaves all of it or nothing
                os.fsync(file.fileno())
            except OSError as error:
                error.filename = os.fspath(marker)  # a full disk does not say it
                raise
    sync_folder(folder)


def _remove_content(folder: Path) -> None:
    """Remove what is ours of an unfinished folder, but the lock and what says that it is that."""
    for name in _FILES:
        (folder / name).unlink(missing_ok=True)
    for name in _FOLDERS:
        inner = folder / name
        if not inner.is_dir() or inner.is_symlink():
            continue
        remove_abandoned(inner)
        for entry in inner.iterdir():
            if _CHUNK.fullmatch(entry.name) and not entry.is_dir():
                entry.unlink()
        with contextlib.suppress(OSError):  # something else is in it
            inner.rmdir()
