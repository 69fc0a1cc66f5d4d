"""Small folders of episodes whose numbers can be computed by hand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave.episodes import EpisodeBuffer
from sharpwave.pages.serving import PageServer
from sharpwave.pages.viewer import Viewer

LENGTHS = (3, 5, 2, 4)

FIELDS: dict[str, Any] = {
    "obs": {"image": ("uint8", (12, 16, 3)), "speed": "float32"},
    "action": "int32",
    "reward": "float32",
    "embedding": ("float32", (10,)),
}


def image(episode: int, step: int) -> Any:
    """A dark picture with a bright column that moves with the step."""
    picture = np.full((12, 16, 3), 10 * episode, np.uint8)
    picture[:, step % 16] = (255, 200, 40)
    return picture


def step_of(episode: int, step: int) -> dict[str, Any]:
    """The fields of a step: the reward is 1 + episode, the speed the step."""
    return {
        "obs": {"image": image(episode, step), "speed": float(step)},
        "action": step % 3,
        "reward": 1.0 + episode,
        "embedding": np.arange(10) / 10.0 + step,
    }


def new_buffer(folder: Path, **options: Any) -> EpisodeBuffer:
    """An empty buffer for such episodes."""
    meta = {"task": "int32", "success": "bool"}
    return EpisodeBuffer(folder, 100, 200, FIELDS, meta, **options)


def add_episode(buffer: EpisodeBuffer, episode: int, length: int) -> None:
    """Store an episode; every second one is a success."""
    with buffer.one_episode(task=episode % 2, success=episode % 2 == 0):
        for step in range(length):
            buffer.store(**step_of(episode, step))


def write_folder(folder: Path, lengths: tuple[int, ...] = LENGTHS) -> Path:
    """A folder of complete episodes of these lengths."""
    with new_buffer(folder) as buffer:
        for episode, length in enumerate(lengths):
            add_episode(buffer, episode, length)
    return folder


@contextmanager
def served(folder: Path) -> Iterator[PageServer]:
    """A server of a folder that answers until the end of the block."""
    with Viewer(folder) as viewer, viewer.server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
