"""The buffers of this process that have a folder open.

The lock of a folder tells processes apart. Within one process the buffers tell each other: the one
that overwrites a folder ends those that were there, and writers of episodes take turns.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

__all__ = ["Handle", "Handles"]


class Handle(Protocol):
    """A buffer that has a folder open."""

    def _is_writer(self) -> bool:
        """Return whether it holds the lock of the folder."""

    def _step_back(self) -> None:
        """Let the lock go, if it can, and go on reading."""

    def _retire(self, reason: str) -> None:
        """Let the folder go for good; whatever is asked for later raises the reason."""


class Handles:
    """The open buffers of one folder.

    Attributes:
        lock: Held while one of them starts or ends, or begins or ceases to write.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._open: weakref.WeakSet[Handle] = weakref.WeakSet()

    @staticmethod
    def of(path: str | os.PathLike[str]) -> Handles:
        """The open buffers of the folder at `path`."""
        key = os.path.realpath(path)
        with _guard:
            found = _by_folder.get(key)
            if found is None:
                found = _by_folder[key] = Handles()
            return found

    def add(self, handle: Handle) -> None:
        """Count a buffer that has opened the folder."""
        self._open.add(handle)

    def remove(self, handle: Handle) -> None:
        """Count it no more."""
        self._open.discard(handle)

    def step_back(self) -> None:
        """Have the writer let the lock go, unless it is in the middle of something."""
        for handle in self._writers():
            handle._step_back()

    def retire_writer(self, path: Path) -> None:
        """End the buffer that writes to the folder, so that its lock can be taken."""
        for handle in self._writers():
            handle._retire(_overwritten(path))

    def retire(self, path: Path) -> None:
        """End all of them: the folder is about to be another."""
        for handle in list(self._open):
            handle._retire(_overwritten(path))

    def _writers(self) -> Iterator[Handle]:
        return (handle for handle in list(self._open) if handle._is_writer())


def _overwritten(path: Path) -> str:
    return (
        f"the buffer is closed: its folder, {path}, was overwritten by another buffer of this "
        "process"
    )


_guard = threading.Lock()
_by_folder: weakref.WeakValueDictionary[str, Handles] = weakref.WeakValueDictionary()


def _renew_locks() -> None:
    """In a forked child: threads that stayed in the parent would hold their locks for ever."""
    global _guard
    _guard = threading.Lock()
    for handles in list(_by_folder.values()):
        handles.lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_locks)
