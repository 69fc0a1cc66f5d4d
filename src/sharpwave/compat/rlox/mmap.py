"""The buffer in a folder, with rlox's `close` and constructor."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any

from sharpwave import buffers

__all__ = ["MmapReplayBuffer"]

_made: dict[str, tuple[int, ...]] = {}
"""The stores that this process made and did not decide to keep, by path."""


class MmapReplayBuffer(buffers.MmapReplayBuffer):
    """`sharpwave.MmapReplayBuffer`, which `close()` deletes.

    As in rlox a program may make a buffer twice at one path, as a cell of a notebook does that is
    run again: the second takes the place of the first, whose later calls raise. What another
    process made, and what `close(delete=False)` or the end of a `with` block kept, is refused
    unless `overwrite` is True.

    Args:
        hot_capacity: Steps whose pages are never released, the newest ones.
        total_capacity: Steps to keep; the oldest go first.
        obs_dim: Length of observations.
        act_dim: Length of actions.
        cold_path: The folder.
        **options: Further ones of `sharpwave.MmapReplayBuffer`.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/replay_cold.bin"
        >>> buffer = MmapReplayBuffer(10, 100, obs_dim=3, act_dim=1, cold_path=path)
        >>> buffer = MmapReplayBuffer(10, 100, obs_dim=3, act_dim=1, cold_path=path)
        >>> buffer.close()
        >>> Path(path).exists()
        False
    """

    __slots__ = ()

    def __init__(
        self,
        hot_capacity: int,
        total_capacity: int,
        obs_dim: int | None = None,
        act_dim: int | None = None,
        cold_path: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        if cold_path is not None and _was_made_here(cold_path):
            options = {**options, "overwrite": True}
        super().__init__(hot_capacity, total_capacity, obs_dim, act_dim, cold_path, **options)
        _made[os.path.realpath(self.path)] = _identity(self.path)

    def close(self, delete: bool = True) -> None:
        """Leave the folder, after which the buffer is of no use.

        Args:
            delete: Delete the folder. A read-only buffer and a forked process never do.
        """
        if not self.closed:
            _made.pop(os.path.realpath(self.path), None)
        super().close(delete)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(delete=False)


def _was_made_here(path: str | os.PathLike[str]) -> bool:
    known = _made.get(os.path.realpath(path))
    return known is not None and known == _identity(path)


def _identity(path: str | os.PathLike[str]) -> tuple[int, ...]:
    """Identity of a store, to tell it from others at its path or of other processes."""
    try:
        status = (Path(path) / "header.json").stat()
    except OSError:
        return ()
    return os.getpid(), status.st_dev, status.st_ino, status.st_mtime_ns
