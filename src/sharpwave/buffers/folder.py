"""Folders of the durable store: what is in them, who may write, and what must not be touched.

    header.json   what the folder holds, as JSON with a checksum; written last and never changed
    state         what is committed (64-bit words, see `_native`)
    lock          held by the one writer
    columns/      rows, in chunk files `name.000000000012`
    dataset.json  how the content was made, where somebody wrote that down

A folder is ours when its header says so. Whatever else lies in it is left alone.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sharpwave import _native
from sharpwave.errors import SharpwaveIOError
from sharpwave.files import make_folder, replace_file

FORMAT = "sharpwave store"
VERSION = 1
_FILES = (
    "header.json",
    "state",
    "lock",
    "marks",
    "priorities",
    "update.journal",
    "dataset.json",
)
_FOLDERS = ("columns", "staging")


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
        path: Where it is.
        header: What `header.json` says.
    """

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.path = path
        self.header = header
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
            kind: What it holds, such as "episodes".
            description: More entries for the header.
            n_words: Words of the commit state.
            overwrite: Replace a folder of ours that nobody writes to.

        Raises:
            SharpwaveIOError: The path holds something else, or cannot be written.
            FolderLockedError: Somebody writes to the folder.
        """
        folder = cls(Path(path), {})
        try:
            _check_free(folder.path, overwrite=overwrite)
            make_folder(folder.path)
            folder.lock()
            _check_free(folder.path, overwrite=overwrite)  # nobody can change it any more
            _remove_content(folder.path)
            folder.columns.mkdir()
            _native.create_commit_state(os.fspath(folder.state), n_words)
            folder.header = _write_header(folder.path, kind, description)
        except SharpwaveIOError:
            folder.unlock()
            raise
        except OSError as error:
            folder.unlock()
            raise SharpwaveIOError(
                error.errno, f"cannot make {folder.path}: {error.strerror}"
            ) from error
        return folder

    @classmethod
    def open(cls, path: str | os.PathLike[str], kind: str | None = None) -> StoreFolder:
        """An existing folder, without its lock. Nothing is written.

        Raises:
            SharpwaveIOError: There is none, it is of another kind, or its header is damaged.
        """
        folder = cls(Path(path), read_header(path))
        if kind is not None and folder.kind != kind:
            raise SharpwaveIOError(f"{folder.path} holds {folder.kind}, not {kind}")
        return folder

    @property
    def kind(self) -> str:
        """What the folder holds."""
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
        """Whether this process may write."""
        return self._lock is not None and self._lock.is_mine

    def lock(self) -> None:
        """Take the writer's lock.

        Raises:
            FolderLockedError: Somebody has it.
        """
        if not self.is_locked:
            self._lock = _native.WriterLock(os.fspath(self.path / "lock"))

    def unlock(self) -> None:
        """Let the writer's lock go."""
        self._lock = None

    def delete(self) -> None:
        """Remove all that is ours, and the folder if nothing else is in it. Needs the lock."""
        if not self.is_locked:
            raise SharpwaveIOError(f"{self.path} must be locked before it is deleted")
        try:
            _remove_content(self.path)
            (self.path / "lock").unlink(missing_ok=True)
            self.unlock()
            with contextlib.suppress(OSError):  # something else is in it
                self.path.rmdir()
        except OSError as error:
            raise SharpwaveIOError(error.errno, f"cannot remove {self.path}: {error}") from error


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether the folder's header says that it is ours (its content may be damaged)."""
    try:
        return _parse_header(Path(path)).get("format") == FORMAT
    except (OSError, ValueError):
        return False


def writer_of(path: str | os.PathLike[str]) -> int:
    """The process that writes to the folder, 0 when nobody does."""
    return _native.writer_of(os.fspath(Path(path) / "lock"))


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What `header.json` says.

    Raises:
        SharpwaveIOError: There is no header of a version that this library knows, or it is damaged.
    """
    folder = Path(path)
    try:
        header = _parse_header(folder)
    except FileNotFoundError:
        raise SharpwaveIOError(errno.ENOENT, f"{folder} holds no store of sharpwave") from None
    except OSError as error:
        raise SharpwaveIOError(
            error.errno, f"cannot read {folder / 'header.json'}: {error.strerror}"
        ) from error
    except ValueError as error:
        raise SharpwaveIOError(f"{folder / 'header.json'} is damaged: {error}") from error
    if header.get("format") != FORMAT:
        raise SharpwaveIOError(f"{folder} holds no store of sharpwave")
    if header.get("version") != VERSION:
        raise SharpwaveIOError(
            f"{folder} has version {header.get('version')}, and this library knows {VERSION}"
        )
    if header.pop("checksum", None) != _checksum(header):
        raise SharpwaveIOError(f"{folder / 'header.json'} is damaged: its checksum does not fit")
    return header


def _parse_header(folder: Path) -> dict[str, Any]:
    header = json.loads((folder / "header.json").read_text(encoding="utf-8"))
    if not isinstance(header, dict):
        raise ValueError("it must hold an object")  # noqa: TRY004 - a fault of the file
    return header


def _write_header(folder: Path, kind: str, description: Mapping[str, Any]) -> dict[str, Any]:
    from sharpwave import __version__  # its module may be on the way to importing this one

    header = {
        "format": FORMAT,
        "version": VERSION,
        "library": __version__,
        "kind": kind,
        **description,
    }
    header = dict(json.loads(json.dumps(header)))  # as it will be read
    text = json.dumps({**header, "checksum": _checksum(header)}, indent=1, ensure_ascii=False)
    replace_file(folder / "header.json", text + "\n")
    return header


def _checksum(header: Mapping[str, Any]) -> int:
    return _native.crc32c(json.dumps(header, sort_keys=True).encode())


def _check_free(path: Path, *, overwrite: bool) -> None:
    """Raise unless the path may become a store."""
    if path.is_symlink() and not path.exists():
        raise SharpwaveIOError(f"{path} is a link to nothing")
    if not path.exists():
        return
    if not path.is_dir():
        raise SharpwaveIOError(errno.EEXIST, f"{path} is a file; a folder is needed")
    if is_store(path):
        if overwrite:
            return
        raise SharpwaveIOError(
            errno.EEXIST, f"{path} holds a store already; open it, or pass overwrite=True"
        )
    # What a process leaves that dies while it makes a folder is ours, too.
    foreign = [entry.name for entry in path.iterdir() if not _is_own(entry)]
    if foreign:
        raise SharpwaveIOError(
            errno.EEXIST,
            f"{path} holds something else ({sorted(foreign)[0]!r}), which is never overwritten",
        )


def _is_own(entry: Path) -> bool:
    if entry.name in _FOLDERS:
        return entry.is_dir() and not entry.is_symlink()
    temporary = re.fullmatch(r"\.header\.json\..+\.tmp", entry.name) is not None
    return temporary or (entry.name in _FILES and entry.is_file())


def _remove_content(folder: Path) -> None:
    """Remove what is ours but the lock: the header first, so that no half of a store remains."""
    for name in _FILES:
        if name != "lock":
            (folder / name).unlink(missing_ok=True)
    for name in _FOLDERS:
        if (folder / name).is_dir() and not (folder / name).is_symlink():
            shutil.rmtree(folder / name)
