"""New files and folders that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from sharpwave.errors import SharpwaveIOError
from sharpwave.storage.files import temporary_beside


@contextlib.contextmanager
def new_target(
    path: str | os.PathLike[str], *, overwrite: bool, is_ours: Callable[[Path], bool]
) -> Iterator[Path]:
    """A path to write a file or a folder to, which becomes `path` when the block ends well.

    Args:
        path: Final path. Missing folders above it are made.
        overwrite: Let it take the place of what is there.
        is_ours: Tells whether a path is of the kind that is written; nothing else is replaced.

    Raises:
        SharpwaveIOError: There is something and `overwrite` is not given, or it is something else.
    """
    path = Path(path)
    check_free(path, overwrite=overwrite, is_ours=is_ours)
    path.parent.mkdir(parents=True, exist_ok=True)
    with temporary_beside(path, folder=True) as folder:
        made = folder / path.name
        yield made
        check_free(path, overwrite=overwrite, is_ours=is_ours)
        if path.is_dir():
            _remove(path)
        made.replace(path)


def check_free(path: Path, *, overwrite: bool, is_ours: Callable[[Path], bool]) -> None:
    """Raise where `new_target` would."""
    if not path.exists() and not path.is_symlink():
        return
    if not overwrite:
        raise SharpwaveIOError(errno.EEXIST, f"{path} exists; overwrite replaces it")
    if not is_ours(path):
        raise SharpwaveIOError(
            errno.EEXIST, f"{path} exists and is something else, which is never overwritten"
        )


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def holds_only(path: Path, *names: str) -> bool:
    """Return whether a folder has no other entries than these: others are a user's own."""
    return path.is_dir() and {entry.name for entry in path.iterdir()} <= set(names)


def starts_with(path: Path, *magics: bytes) -> bool:
    """Return whether a file begins with one of these bytes."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(max(map(len, magics)))
    return head.startswith(magics)


def existing_file(path: str | os.PathLike[str], kind: str, is_kind: Callable[[Path], bool]) -> Path:
    """The path of a file or folder that is of its kind.

    Raises:
        SharpwaveIOError: It is missing, or something else.
    """
    path = Path(path)
    if not path.exists():
        raise SharpwaveIOError(errno.ENOENT, f"there is no {path}")
    if not is_kind(path):
        raise SharpwaveIOError(f"{path} is not {kind}")
    return path
