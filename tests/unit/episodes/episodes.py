"""Buffers for the tests of episodes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave import EpisodeBuffer

FIELDS: dict[str, Any] = {"state": ("float", (3,)), "action": ("int", 2), "reward": "float"}


def make(folder: Path, **options: Any) -> EpisodeBuffer:
    """A buffer in `folder / "episodes"`."""
    arguments = {"max_episodes": 8, "max_timesteps": 50, "fields": FIELDS, **options}
    return EpisodeBuffer(folder / "episodes", **arguments)


def store(buffer: EpisodeBuffer, length: int, number: int = 0) -> None:
    """Store steps that tell their episode and their time."""
    for t in range(length):
        buffer.store(state=[number, t, 0], action=[t, number], reward=t)


def rewards(buffer: EpisodeBuffer, *, aborted: bool = False) -> list[list[float]]:
    """The rewards of every episode."""
    table = buffer.episodes(aborted=aborted)
    return [
        buffer.gather(np.arange(start, start + length), ["reward"])["reward"].tolist()
        for start, length in zip(table.starts, table.lengths, strict=True)
    ]


def crashed(buffer: EpisodeBuffer, target: Path) -> Path:
    """The remains of the buffer's folder when its process dies now."""
    shutil.copytree(buffer.folder, target)
    return target
