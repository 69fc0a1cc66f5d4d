"""The file of all episodes of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sharpwave.runs.loggers.row_file import RowFile

__all__ = ["EpisodeFile"]

HEADER = "r,l,t,step,episode"


class EpisodeFile:
    """A row for every episode of training, in the columns of Gymnasium monitors and two more.

    `r` is the return, `l` the length, `t` the seconds since the run began, `step` the steps of the
    run, both at the update after the end, and `episode` the number of the episode in its run. A run
    that goes on after a crash has every episode once: rows beyond its checkpoint are cut.

    Args:
        path: The file; made with the first episode.
    """

    def __init__(self, path: Path) -> None:
        self._rows = RowFile(path)
        self._number = 0

    def begin(self, loop: Any) -> None:
        """Forget rows that the run, which goes on from here, has not come to yet."""
        self._number, _ = loop.take_episodes()
        # Several processes know of their own episodes alone until the first update.
        most = self._number if loop.ranks.size == 1 else None
        self._rows.cut(lambda line: line == HEADER or _is_before(line, loop.timesteps, most))

    def write(self, loop: Any, seconds: float) -> None:
        """Add the episodes that have ended since the last call."""
        _, new = loop.take_episodes()
        if not new:
            return
        rows = [
            f"{round(returned, 6)},{length},{seconds:.6f},{loop.timesteps},{number}"
            for number, (returned, length) in enumerate(new, self._number + 1)
        ]
        self._number += len(new)
        is_new = not (self._rows.path.exists() and self._rows.path.stat().st_size)
        header = [HEADER] if is_new else []
        self._rows.append("\n".join([*header, *rows]))

    def close(self) -> None:
        """Let go of the file."""
        self._rows.close()


def _is_before(line: str, step: int, most: int | None) -> bool:
    try:
        *_, at, number = line.split(",")
        return int(at) <= step and (most is None or int(number) <= most)
    except ValueError:
        return False
