"""Files that are whole or not there, and readers that forgive what a crash left."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from sharpwave.errors import SharpwaveIOError

_TEMPORARY = re.compile(r"\..*\.sharpwave-[a-z0-9_]{8}\.tmp", re.DOTALL)
"""Names of what is being written beside its place. Whoever writes holds a lock on it, which the
system takes away when the process ends, however it ends."""


def replace_file(path: Path, content: str | bytes) -> None:
    """Write `content` beside `path`, make it last, and put it in the place of `path`.

    The old file stays as it is if anything fails.
    """
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which at the end is made to last and put in the place of `path`.

    The old file stays as it is if anything fails.
    """
    try:
        with temporary_beside(path) as temporary:
            with temporary.open("r+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.chmod(0o644)
            temporary.replace(path)
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)  # a full disk does not say what it had no room for
        raise
    sync_folder(path.parent)  # the new name, too


@contextlib.contextmanager
def temporary_beside(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """A new file or folder beside `path`, removed at the end unless it was given another name.

    What processes left beside `path` that died in such a block is removed first.
    """
    remove_abandoned(path.parent)
    made, descriptor = _make_locked(path, folder=folder)
    try:
        yield made
    finally:
        with contextlib.suppress(OSError):
            _remove(made)
        os.close(descriptor)


def remove_abandoned(folder: Path) -> None:
    """Remove temporary files and folders of processes that are dead. Those of others stay."""
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(folder)):
            if _TEMPORARY.fullmatch(entry.name):
                with contextlib.suppress(OSError):  # somebody is at work with it, or was faster
                    _remove_unless_locked(Path(entry.path))


def _make_locked(path: Path, *, folder: bool) -> tuple[Path, int]:
    """A new file or folder beside a path, and a descriptor that holds the lock on it."""
    name = path.name.encode()[:120].decode(errors="ignore")  # names have limits, too
    prefix, suffix = f".{name}.sharpwave-", ".tmp"
    while True:
        if folder:
            made = Path(tempfile.mkdtemp(suffix, prefix, path.parent))
            descriptor = os.open(made, os.O_RDONLY | os.O_CLOEXEC)
        else:
            descriptor, file = tempfile.mkstemp(suffix, prefix, path.parent)
            made = Path(file)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if made.exists():  # nobody took it for abandoned before it was locked
            return made, descriptor
        os.close(descriptor)


def _remove_unless_locked(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(path)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """Whatever goes wrong inside because of what a file or folder holds names it.

    A damaged or forged file can lead anywhere: an entry that is missing, a list where a number
    should be, a size that no memory has. None of that is a fault of the caller's program.

    Raises:
        SharpwaveIOError: The content cannot be used.
        ValueError: It can be read, but its values do not fit.
    """
    try:
        yield
    except (SharpwaveIOError, ImportError):
        raise
    except OSError as error:
        if error.filename is not None:
            raise
        raise SharpwaveIOError(f"{path} cannot be read: {error}") from error
    except ValueError as error:
        if type(error) is ValueError and str(path) in str(error):
            raise
        raise ValueError(f"{path}: {error}") from error
    except RecursionError as error:
        raise SharpwaveIOError(f"{path} is damaged: it is nested too deeply") from error
    except MemoryError as error:
        raise SharpwaveIOError(
            f"{path} is damaged, or larger than this machine's memory: {error}"
        ) from error
    except Exception as error:
        raise SharpwaveIOError(f"{path} is damaged: {error!r:.500}") from error


def count_of(state: Mapping[str, Any], name: str) -> int:
    """A number of steps, episodes or the like that a file holds.

    Raises:
        ValueError: It is negative, or more than 64 bits hold.
    """
    count = int(state[name])
    if not 0 <= count < 2**63:
        raise ValueError(f"{name} must be from 0 to 2**63 - 1, got {count}")
    return count


def flag_of(state: Mapping[str, Any], name: str) -> bool:
    """A flag that a file holds; False where it does not.

    Raises:
        ValueError: It is something else.
    """
    flag = state.get(name, False)
    if not isinstance(flag, bool):
        raise ValueError(f"{name} must be True or False, got {flag!r:.80}")  # noqa: TRY004
    return flag


def array_of(
    state: Mapping[str, Any], name: str, shape: tuple[int, ...] | None = None
) -> npt.NDArray[Any]:
    """An array that a file holds.

    Args:
        state: Content of the file, by name.
        name: Name of the array.
        shape: The shape that it must have, -1 for any length; None for any shape.

    Raises:
        ValueError: It is something else, or has another shape.
    """
    array = state[name]
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{name} must be an array, got {array!r:.80}")  # noqa: TRY004
    if shape is not None and (
        len(shape) != array.ndim
        or any(n not in (-1, m) for n, m in zip(shape, array.shape, strict=True))
    ):
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    return array


def make_folder(path: Path) -> None:
    """Make a folder and those above it that are missing, so that a loss of power leaves them."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def sync_folder(path: Path) -> None:
    """Wait until the entries of a folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any) -> None:
    """Write a tree of plain values as readable JSON; what JSON cannot hold becomes null or text."""
    replace_file(path, json.dumps(to_json(value), indent=2, ensure_ascii=False) + "\n")


def to_json(value: Any) -> Any:
    """Plain JSON values: arrays and tensors as lists, NaN and inf as null, anything else as text.

    Example:
        >>> to_json({"a": (1, float("nan")), "b": Path("x")})
        {'a': [1, None], 'b': 'x'}
    """
    if isinstance(value, Mapping):
        return {str(key): to_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(inner) for inner in value]
    if hasattr(value, "tolist"):  # arrays, tensors and their scalars
        return to_json(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty when the file is missing or not an object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSON Lines file; lines that a crash tore are left out."""
    try:
        file = path.open(encoding="utf-8", errors="replace")
    except OSError:
        return
    with file:
        for line in file:
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                yield value
