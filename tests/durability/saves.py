"""Buffers to save, and a way to look at all of their state."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np

from sharpwave import Field, PrioritizedReplayBuffer, ReplayBuffer
from sharpwave.buffers import snapshot


def filled(number: int, size: int = 40, **options: Any) -> PrioritizedReplayBuffer:
    """A buffer in which everything is `number`."""
    buffer = PrioritizedReplayBuffer(size, 3, 1, **options)
    for _ in range(size):
        buffer.push([number] * 3, number, number, False, False, [number] * 3, float(number))
    return buffer


def streams(n: int = 30) -> ReplayBuffer:
    """Stream rows of two environments with stacked frames."""
    fields = {
        "obs": Field("uint8", (2, 4), stack=2),
        "action": "int64",
        "reward": "float32",
        "terminated": "bool",
        "truncated": "bool",
    }
    buffer = ReplayBuffer(24, fields=fields, n_envs=2)
    frame = np.arange(2)[:, None, None] + np.arange(2)[:, None] + np.zeros(4, np.uint8)
    for i in range(n):
        ended = np.full(2, i % 7 == 6)
        buffer.push_batch(frame + i, frame + i + 1, [i, i], [i, i], ended, np.zeros(2))
    return buffer


def state_of(buffer: ReplayBuffer) -> Any:
    """All that a pickle of the buffer would hold."""
    return snapshot.to_memory(buffer)


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own, with this one's modules."""
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
