"""The files of a checkpoint that has several: their names, and what is done to all of them.

The file that is asked for is the index. Its parts lie beside it and have its name, their number and
a tag that follows from their content, so that a new checkpoint never touches the parts of the one
that it replaces: these go once the new index is in its place.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sharpwave.errors import SharpwaveIOError
from sharpwave.storage.checkpoints.container import TensorFile
from sharpwave.storage.files import sync_folder

__all__ = ["list_parts", "remove_checkpoint", "rename_checkpoint", "torn_parts"]

_PART = re.compile(r"(?P<name>.+)\.part-\d{5,}-of-\d{5,}-[0-9a-f]{16}", re.DOTALL)
_TAG = re.compile(r"[0-9a-f]{16}")


def part_paths(path: Path, tag: Any, count: int) -> Iterator[Path]:
    """Paths of the parts of a checkpoint, one by one: a forged index may claim any number.

    Raises:
        ValueError: The tag is none.
    """
    if not isinstance(tag, str) or not _TAG.fullmatch(tag):
        raise ValueError(f"the tag of the parts must be 16 hexadecimal digits, got {tag!r:.80}")
    for number in range(1, count + 1):
        yield path.with_name(f"{path.name}.part-{number:05}-of-{count:05}-{tag}")


def parts_in(path: Path, document: Any) -> Iterator[Path]:
    """The parts that the document of a checkpoint refers to."""
    parts = document.get("parts")
    return iter(()) if parts is None else part_paths(path, parts["tag"], len(parts["checksums"]))


def list_parts(path: str | os.PathLike[str]) -> list[Path]:
    """The parts that lie beside a checkpoint, also those that a killed process left."""
    path = Path(path)
    return [part for part in _parts_in_folder(path.parent) if _name_of(part) == path.name]


def torn_parts(folder: str | os.PathLike[str]) -> list[Path]:
    """Parts in a folder that no checkpoint in it refers to, and that nobody is writing."""
    checkpoints = {part.with_name(_name_of(part)) for part in _parts_in_folder(Path(folder))}
    return sorted(part for path in checkpoints for part in _unused(path))


def remove_checkpoint(path: str | os.PathLike[str]) -> None:
    """Remove a checkpoint with its parts; nothing happens where there is none."""
    path = Path(path)
    path.unlink(missing_ok=True)
    remove_unused_parts(path)


def rename_checkpoint(path: str | os.PathLike[str], to: str | os.PathLike[str]) -> None:
    """Give a checkpoint and its parts another name on the same disk, at once or not at all.

    Raises:
        OSError: It cannot be; the checkpoint is still where it was.
    """
    path, to = Path(path), Path(to)
    try:
        for part in list_parts(path):
            _link(part, to.with_name(to.name + part.name.removeprefix(path.name)))
        sync_folder(to.parent)
        path.replace(to)
    finally:
        remove_unused_parts(path)
        remove_unused_parts(to)
    for folder in {path.parent, to.parent}:
        sync_folder(folder)


def remove_unused_parts(path: Path) -> None:
    """Remove the parts of a checkpoint that was replaced, removed, or never completed."""
    for part in _unused(path):
        with contextlib.suppress(OSError):  # the next one tries again
            part.unlink()


def _unused(path: Path) -> list[Path]:
    found = []
    for part in list_parts(path):
        with contextlib.suppress(OSError):  # somebody is at work with it, or removed it
            descriptor = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                # A part is locked until its index is in place: read that only now.
                if part not in _used(path):
                    found.append(part)
            finally:
                os.close(descriptor)
    return found


def _used(path: Path) -> set[Path]:
    """The parts that the checkpoint at a path refers to.

    Raises:
        SharpwaveIOError: There is something else, which may be of use to somebody.
    """
    try:
        file = TensorFile(path)
    except FileNotFoundError:
        return set()
    try:
        return set(parts_in(path, file.document))
    except Exception as error:
        raise SharpwaveIOError(f"{path}: not a checkpoint or damaged: {error!r:.500}") from error
    finally:
        file.close()


def _parts_in_folder(folder: Path) -> list[Path]:
    try:
        return sorted(Path(one.path) for one in os.scandir(folder) if _PART.fullmatch(one.name))
    except OSError:
        return []


def _name_of(part: Path) -> str:
    """The name of the checkpoint that a part belongs to."""
    found = _PART.fullmatch(part.name)
    assert found is not None
    return found["name"]


def _link(path: Path, to: Path) -> None:
    """A second name for a file, or a copy where the file system has no such thing."""
    to.unlink(missing_ok=True)
    try:
        os.link(path, to)
    except OSError:
        shutil.copyfile(path, to)
