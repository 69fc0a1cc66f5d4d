"""Buffers in folders beside the same ones in memory, with rows so wide that chunks hold few."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sharpwave import Field, MmapReplayBuffer, ReplayBuffer
from tests.reference.nests import assert_same
from tests.reference.steps import Steps, as_batch

FLAGS: dict[str, Any] = {"reward": "float32", "terminated": "bool", "truncated": "uint8"}
WIDE: dict[str, Any] = {"obs": ("uint8", (2500,)), "action": "int32", **FLAGS}
WIDE_WITH_NEXT: dict[str, Any] = {**WIDE, "next_obs": ("uint8", (2500,))}
FRAMES: dict[str, Any] = {"obs": Field("uint8", (3, 50, 40), stack=3), "action": "int32", **FLAGS}

KINDS: dict[str, dict[str, Any]] = {
    "rows": {"fields": WIDE_WITH_NEXT},
    "rows in order": {"fields": WIDE_WITH_NEXT, "n_envs": 1},
    "streams": {"fields": WIDE, "n_envs": 3},
    "frames": {"fields": FRAMES, "n_envs": 2},
    "prioritized rows": {"fields": WIDE_WITH_NEXT, "prioritized": True},
    "prioritized streams": {"fields": WIDE, "n_envs": 3, "prioritized": {"alpha": 0.9}},
}
CAPACITY = 90


def make(kind: str, path: Path, capacity: int = CAPACITY, **options: Any) -> MmapReplayBuffer:
    return MmapReplayBuffer(capacity // 4, capacity, cold_path=path, **KINDS[kind], **options)


def in_memory(kind: str, capacity: int = CAPACITY) -> ReplayBuffer:
    """The expected content of the buffer; it draws uniformly, whatever the kind."""
    options = {key: value for key, value in KINDS[kind].items() if key != "prioritized"}
    return ReplayBuffer(capacity, **options)


def steps_of(buffer: ReplayBuffer) -> Steps:
    return Steps(buffer.schema, buffer.n_envs or 1)


def push(rows: list[dict[str, Any]], *buffers: Any) -> None:
    for buffer in buffers:
        buffer.push_batch(**as_batch(rows))


def fill(kind: str, path: Path, n: int = 300, **options: Any) -> tuple[MmapReplayBuffer, Steps]:
    """A buffer that has gone round several times, and its next steps."""
    buffer = make(kind, path, **options)
    steps = steps_of(buffer)
    for _ in range(n // 30):
        push(steps.take(30), buffer)
    return buffer, steps


def change_priorities(*buffers: Any, seed: int = 0) -> None:
    for buffer in buffers:
        drawn = buffer.sample(min(len(buffer), 20), seed=seed)["indices"]
        buffer.update_priorities(drawn, np.linspace(0.0, 7.0, len(drawn)))
        buffer.set_beta(0.8)


def assert_same_content(got: ReplayBuffer, expected: ReplayBuffer) -> None:
    """The same steps under the same ids."""
    assert_same(got.indices(), expected.indices())
    assert_same(got.gather(got.indices()), expected.gather(expected.indices()))


def assert_same_state(got: ReplayBuffer, expected: ReplayBuffer, batch_size: int = 8) -> None:
    """The same steps, and the same draws from now on."""
    assert_same_content(got, expected)
    for _ in range(3):
        if len(expected) >= batch_size:
            assert_same(
                got.sample(batch_size, indices=True), expected.sample(batch_size, indices=True)
            )
    life = [
        {key: value for key, value in buffer.stats().items() if "bytes" not in key}
        for buffer in (got, expected)
    ]
    assert life[0] == life[1]
