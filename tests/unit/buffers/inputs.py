"""A small buffer, good input for it, and checks of what bad input does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sharpwave import PrioritizedReplayBuffer, ReplayBuffer
from sharpwave.buffers import snapshot

NAN, INF = float("nan"), float("inf")
CLASSES = [ReplayBuffer, PrioritizedReplayBuffer]


def make(cls: Any = ReplayBuffer, n: int = 8, **options: Any) -> Any:
    buffer = cls(16, 3, 1, **options)
    for i in range(n):
        buffer.push([i] * 3, i, float(i), False, False, [i + 1] * 3)
    return buffer


def step(**changes: Any) -> dict[str, Any]:
    values = {
        "obs": np.zeros(3, np.float32),
        "action": 0.0,
        "reward": 0.0,
        "terminated": False,
        "truncated": False,
        "next_obs": np.zeros(3, np.float32),
    }
    return {**values, **changes}


def steps(n: int = 4, **changes: Any) -> dict[str, Any]:
    values = {
        "obs": np.zeros((n, 3)),
        "next_obs": np.zeros((n, 3)),
        "actions": np.zeros((n, 1)),
        "rewards": np.zeros(n),
        "terminated": np.zeros(n),
        "truncated": np.zeros(n),
    }
    return {**values, **changes}


def refused(error: type[Exception], message: str, call: Any) -> None:
    """Check that the call raises this error with this message."""
    with pytest.raises(error, match=message):
        call()


class Unchanged:
    """Checks that a buffer is in the end as it was in the beginning."""

    def __init__(self, buffer: ReplayBuffer) -> None:
        self._buffer = buffer

    def __enter__(self) -> None:
        self._before = snapshot.to_memory(self._buffer)

    def __exit__(self, *error: object) -> None:
        assert snapshot.to_memory(self._buffer) == self._before
