"""The header of a store's folder: what the folder holds, and the proof that it is ours.

`header.json` is JSON with a checksum, written once. The file of the commit words ends with a copy
of it, from which a header that is damaged or lost is rebuilt:

    ... words and their copies | text | bytes of the text, its checksum, "swheader"

Nothing but a header whose checksum fits says that a folder is a store: not the names in it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sharpwave import _native
from sharpwave.errors import SharpwaveIOError
from sharpwave.storage.files import replace_file

FORMAT = "sharpwave store"
VERSION = 2
"""Of new folders. Since 2 the checksum of a chunk is of its column and schema, too, and a push to
several environments commits as one."""
KNOWN_VERSIONS = (1, 2)
FILE = "header.json"

MOST_CHUNK_BYTES = 1 << 40
_MOST_BYTES = 64 << 20
_FOOTER = struct.Struct("<QI8s")
_MAGIC = b"swheader"
REPAIR = "`sharpwave repair` or repair=True rebuilds it from the copy in `state`"


class InvalidHeaderError(SharpwaveIOError):
    """There is no header, or one that its checksum does not fit."""


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The entries of `header.json`, with at least a kind and a version.

    Raises:
        SharpwaveIOError: There is no header of a version that this library knows, or it is damaged.
    """
    folder = Path(path)
    try:
        text = _read_regular(folder / FILE)
    except FileNotFoundError:
        raise _missing(folder) from None
    except NotADirectoryError:
        raise InvalidHeaderError(errno.ENOENT, f"{folder} holds no store of sharpwave") from None
    except OSError as error:
        raise InvalidHeaderError(
            error.errno, f"cannot read {folder / FILE}: {error.strerror or error}; {REPAIR}"
        ) from error
    return _checked(folder, text)


def is_store(path: str | os.PathLike[str]) -> bool:
    """Return whether the folder's header says that it is ours (its content may be damaged)."""
    try:
        read_header(path)
    except InvalidHeaderError:
        return False
    except SharpwaveIOError:  # of another version
        return True
    return True


def is_header(path: str | os.PathLike[str], text: bytes) -> bool:
    """Return whether the text is a valid header, wherever it was found."""
    try:
        _checked(Path(path), text)
    except SharpwaveIOError:
        return False
    return True


def write_header(folder: Path, kind: str, description: Mapping[str, Any]) -> dict[str, Any]:
    """Write the header of a new folder, whose commit words are there already, and its copy."""
    from sharpwave import __version__  # its module may be on the way to importing this one

    header = {
        "format": FORMAT,
        "version": VERSION,
        "library": __version__,
        "kind": kind,
        **description,
    }
    header = dict(json.loads(json.dumps(header)))  # as it will be read
    text = _encoded(header)
    _append_copy(folder / "state", text)
    replace_file(folder / FILE, text)
    return header


@contextlib.contextmanager
def believing(folder: Path) -> Iterator[None]:
    """Whatever the entries of a header lead to inside this block is a fault of the header."""
    try:
        yield
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        MemoryError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        what = str(error) or "it asks for more memory than there is"
        kind = "" if isinstance(error, MemoryError | ValueError) else f"{type(error).__name__}: "
        raise SharpwaveIOError(f"{folder / FILE} makes no sense: {kind}{what}") from error


def integer(value: object, least: int, most: int, name: str) -> int:
    """An entry that must be an integer in a range.

    Raises:
        ValueError: It is something else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} must be an integer from {least} to {most}, got {value!r:.80}")
    return value


def check_column(entry: object, expected: Mapping[str, Any]) -> None:
    """Compare what a header says about a column with what its schema asks for.

    Raises:
        ValueError: They differ, or a size makes no sense.
    """
    if not isinstance(entry, dict):
        raise ValueError(f"a column must be an object, got {entry!r:.80}")  # noqa: TRY004
    for key, value in expected.items():
        if entry.get(key) != value or type(entry.get(key)) is not type(value):
            raise ValueError(
                f"column {expected['name']!r} must have {key} {value!r} as the schema says, "
                f"got {entry.get(key)!r:.80}"
            )
    rows = integer(entry.get("chunk_rows"), 1, MOST_CHUNK_BYTES, "chunk_rows")
    integer(rows * expected["row_bytes"], 1, MOST_CHUNK_BYTES, "bytes of a chunk")


def identity_of(header: Mapping[str, Any]) -> int:
    """Seed of the checksums of a store's chunks; 0 in version 1, which has none."""
    return 0 if header["version"] == 1 else _checksum(header) or 1


def keep_copy(folder: Path, header: Mapping[str, Any]) -> None:
    """Add the copy of the header to a folder that was made without one."""
    state = folder / "state"
    if state.is_file() and _read_copy(state) is None:
        with contextlib.suppress(OSError):  # a full disk: it was there without one so far
            _append_copy(state, _encoded(header))


def rebuilt_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The header, rebuilt from its copy.

    Raises:
        SharpwaveIOError: There is no such copy.
    """
    folder = Path(path)
    if not (os.path.lexists(folder / FILE) or os.path.lexists(folder / "state")):
        raise SharpwaveIOError(errno.ENOENT, f"{folder} holds no store of sharpwave")
    text = _read_copy(folder / "state")
    if text is None:
        raise SharpwaveIOError(
            f"{folder / FILE} cannot be rebuilt: there is no copy of it in {folder / 'state'}; "
            "bring the file back from a backup of the folder"
        )
    return _checked(folder, text)


def restore_header(path: str | os.PathLike[str], header: Mapping[str, Any]) -> None:
    """Write a header that was rebuilt. The writer's lock must be held."""
    file = Path(path) / FILE
    if file.is_dir() and not file.is_symlink():
        raise SharpwaveIOError(
            errno.EISDIR, f"{file} is a folder; move it away, then repair puts the header there"
        )
    replace_file(file, _encoded(header))


def _checked(folder: Path, text: bytes) -> dict[str, Any]:
    file = folder / FILE
    try:
        header = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidHeaderError(f"{file} is damaged: {error}; {REPAIR}") from error
    if not isinstance(header, dict):
        raise InvalidHeaderError(f"{file} is damaged: it must hold an object; {REPAIR}")
    try:
        fits = header.pop("checksum", None) == _checksum(header)
    except RecursionError:
        fits = False
    if header.get("format") != FORMAT:
        raise InvalidHeaderError(f"{file} is of no store of sharpwave; {REPAIR}, if there is one")
    version = header.get("version")
    if version not in KNOWN_VERSIONS or isinstance(version, bool | float):
        known = " and ".join(map(str, KNOWN_VERSIONS))
        kind = SharpwaveIOError if fits else InvalidHeaderError
        hint = "" if fits else f" (its checksum does not fit; {REPAIR})"
        raise kind(f"{file} has version {version!r}, and this library knows {known}{hint}")
    if not fits:
        raise InvalidHeaderError(f"{file} is damaged: its checksum does not fit; {REPAIR}")
    if not isinstance(header.get("kind"), str):
        raise SharpwaveIOError(f"{file} makes no sense: it names no kind of store")
    return header


def _missing(folder: Path) -> InvalidHeaderError:
    hint = f" ({FILE} is missing; if there was one, {REPAIR})" if folder.exists() else ""
    return InvalidHeaderError(errno.ENOENT, f"{folder} holds no store of sharpwave{hint}")


def _read_regular(path: Path) -> bytes:
    """A file's content. A pipe is not waited for, and a device not read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no file")
        if status.st_size > _MOST_BYTES:
            raise OSError(errno.EFBIG, "it is too large for a header")
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read()
    finally:
        os.close(descriptor)


def _encoded(header: Mapping[str, Any]) -> bytes:
    signed = {**header, "checksum": _checksum(header)}
    return (json.dumps(signed, indent=1, ensure_ascii=False) + "\n").encode()


def _checksum(header: Mapping[str, Any]) -> int:
    return _native.crc32c(json.dumps(header, sort_keys=True).encode())


def _append_copy(state: Path, text: bytes) -> None:
    with state.open("ab") as file:
        file.write(text + _FOOTER.pack(len(text), _native.crc32c(text), _MAGIC))
        file.flush()
        os.fsync(file.fileno())


def _read_copy(state: Path) -> bytes | None:
    with contextlib.suppress(OSError), state.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        if end < _FOOTER.size:
            return None
        file.seek(end - _FOOTER.size)
        size, checksum, magic = _FOOTER.unpack(file.read(_FOOTER.size))
        if magic != _MAGIC or size > min(_MOST_BYTES, end - _FOOTER.size):
            return None
        file.seek(end - _FOOTER.size - size)
        text = file.read(size)
        return text if _native.crc32c(text) == checksum else None
    return None
