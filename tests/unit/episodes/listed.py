"""Buffers of listed episodes whose values tell where they come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.reference.episodes import ListedEpisodes, ListedField

FIELDS = {
    "obs.image": ListedField("uint8", (2, 2)),
    "obs.speed": ListedField("float32"),
    "action": ListedField("int32", (2,)),
    "reward": ListedField("float32"),
    "done": ListedField("bool"),
}
META = {"task": ListedField("int32"), "goal": ListedField("float32", (2,))}


def values(number: int, length: int, task: int) -> dict[str, Any]:
    """An episode in which every value is different from those of others."""
    t = np.arange(length)
    return {
        "obs.image": (number * 37 + t[:, None, None] * 4 + np.arange(4).reshape(2, 2)) % 256,
        "obs.speed": number + t / 1000,
        "action": np.stack([np.full(length, number), t], axis=1),
        "reward": t % 3,
        "done": t == length - 1,
        "task": task,
        "goal": [number, -number],
    }


def listed(lengths: Sequence[int], room: int | None = None) -> ListedEpisodes:
    """Episodes of these lengths; the task of episode i is i % 3."""
    buffer = ListedEpisodes(FIELDS, META, room=room)
    for number, length in enumerate(lengths):
        buffer.store_episode(**values(number, length, number % 3))
    return buffer


def more(buffer: ListedEpisodes, length: int) -> None:
    """Another episode."""
    buffer.store_episode(**values(buffer.ids, length, buffer.ids % 3))
