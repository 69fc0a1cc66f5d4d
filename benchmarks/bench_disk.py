"""Replay on disk: pushing, drawing while pushing, images, and how much of it stays in memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import cycle
from pathlib import Path
from typing import Any

import data
import numpy as np
import peers
from data import ACT_DIM, MILLION, OBS_DIM, Transitions
from harness import FLOOR, OURS, AtMost, Operation, Ratio, Result, Row, collect

HOT = 10_000
IMAGE_ROWS = 5_000
RLOX_IMAGE_ROWS = 1_000
BUDGET_MIB = 256


def rows() -> Iterator[Row | Result]:
    folder = Path(tempfile.mkdtemp(prefix="replay-"))
    try:
        yield from flat_rows(folder)
        yield image_rows(folder)
        yield resident_set(folder)
    finally:
        shutil.rmtree(folder)


class Mapped:
    """The same transitions in a buffer on disk of every contender, made when asked for."""

    def __init__(self, folder: Path, rows: Transitions) -> None:
        self.folder = folder
        self.rows = rows

    @cached_property
    def ours(self) -> Any:
        """Ours, as transition rows."""
        import sharpwave as sw

        path = self.folder / "sharpwave"
        if self.rows.obs.dtype == np.uint8:
            shape: dict[str, Any] = {"fields": peers.IMAGE_FIELDS}
        else:
            shape = {"obs_dim": OBS_DIM, "act_dim": ACT_DIM}
        n = len(self.rows)
        return peers.fill(
            sw.MmapReplayBuffer(min(HOT, n), n, cold_path=path, **shape),
            peers.chunks(self.rows, 500 if "fields" in shape else 20_000),
        )

    @cached_property
    def rlox(self) -> Any:
        """The one of rlox, whose observations are flat float32."""
        import rlox

        image = self.rows.obs.dtype == np.uint8
        n = RLOX_IMAGE_ROWS if image else len(self.rows)
        dims = (self.rows.obs[0].size, self.rows.actions[:1].size)
        buffer = rlox.MmapReplayBuffer(min(HOT, n // 10), n, *dims, str(self.folder / "rlox"))
        for chunk in peers.chunks(self.rows, 100 if image else 20_000):
            buffer.push_batch(*(column.astype(np.float32) for column in chunk.flat()))
            if len(buffer) >= n:
                break
        return buffer

    @cached_property
    def cpprb(self) -> Any:
        """The one of cpprb."""
        image = self.rows.obs.dtype == np.uint8
        buffer = peers.cpprb(len(self.rows), image=image, mmap_prefix=str(self.folder / "cpprb"))
        return peers.fill_cpprb(buffer, peers.chunks(self.rows, 500 if image else 20_000))

    @cached_property
    def numpy(self) -> peers.NumpyColumns:
        """Six mapped columns, by hand."""
        columns = peers.NumpyColumns(Transitions(*(c[:1] for c in self.rows.columns())))
        columns.capacity = len(self.rows)
        columns.columns = [self._column(i, c) for i, c in enumerate(self.rows.columns())]
        return columns

    def _column(self, i: int, values: np.ndarray) -> np.ndarray:
        path = self.folder / f"numpy-{i}"
        column = np.memmap(path, values.dtype, "w+", shape=values.shape)
        column[:] = values
        return column


def flat_rows(folder: Path) -> Iterator[Row]:
    stored = data.transitions(MILLION)
    mapped = Mapped(folder, stored)
    step = peers.one(stored)
    first = peers.cpprb_arguments(next(peers.chunks(stored, 1)))
    yield Row(
        "push one, 1M on disk",
        {
            OURS: lambda: partial(mapped.ours.push, *step),
            "rlox": lambda: partial(mapped.rlox.push, *step),
            "cpprb": lambda: partial(mapped.cpprb.add, **first),
            "numpy": lambda: partial(mapped.numpy.push, *step),
        },
        [Ratio("rlox", 1.3)],
        note="numpy: six memmap columns",
    )

    def both(push: Callable[[], object], sample: Callable[[], object]) -> Operation:
        os.sync()  # the writing back of what they were filled with is not to be timed

        def push_and_sample() -> None:
            push()
            sample()

        return push_and_sample

    yield Row(
        "push one and sample 256, 1M on disk",
        {
            OURS: lambda: both(partial(mapped.ours.push, *step), partial(mapped.ours.sample, 256)),
            "rlox": lambda: both(
                partial(mapped.rlox.push, *step), peers.seeded(mapped.rlox.sample, 256)
            ),
            "cpprb": lambda: both(
                partial(mapped.cpprb.add, **first), partial(mapped.cpprb.sample, 256)
            ),
            "numpy": lambda: both(
                partial(mapped.numpy.push, *step), partial(mapped.numpy.sample, 256)
            ),
        },
        [Ratio("numpy", 1.0), Ratio("rlox", 40.0)],
    )


def image_rows(folder: Path) -> Row:
    (folder / "images").mkdir()
    mapped = Mapped(folder / "images", data.images(IMAGE_ROWS))
    return Row(
        "sample 256 images on disk, 84x84x4 uint8",
        {
            OURS: lambda: partial(mapped.ours.sample, 256),
            "rlox": lambda: peers.seeded(mapped.rlox.sample, 256),
            "cpprb": lambda: partial(mapped.cpprb.sample, 256),
            "numpy": lambda: partial(mapped.numpy.sample, 256),
            FLOOR: lambda: copy_of_a_batch(mapped.rows),
        },
        [Ratio("numpy", 1.0)],
        note=f"of {IMAGE_ROWS} rows; rlox holds {RLOX_IMAGE_ROWS} rows of float32; "
        "floor: a copy of as many bytes in memory",
    )


RESIDENT = """
import sys
import numpy as np
import sharpwave as sw

def resident():
    with open("/proc/self/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return sum(int(fields[key].split()[0]) for key in ("RssFile", "RssShmem")) / 1024

path, rows, budget = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
image = ("uint8", (84, 84, 4))
fields = {"obs": image, "action": "int64", "reward": "float32", "terminated": "bool",
          "truncated": "bool"}
buffer = sw.MmapReplayBuffer(1000, 1_000_000, fields=fields, n_envs=1, cold_path=path,
                             resident_bytes=budget << 20)
frame = np.zeros((101, *image[1]), np.uint8)
frame[:] = np.arange(101)[:, None, None, None]
zeros = np.zeros(100)
buffer.push_batch(frame[:-1], frame[1:], zeros, zeros, zeros, zeros)
buffer.sample(10)
buffer.clear()
before, most = resident(), 0.0
for i in range(rows // 100):
    buffer.push_batch(frame[:-1], frame[1:], zeros, zeros, zeros, zeros)
    most = max(most, resident())
for _ in range(100):
    buffer.sample(256)
    most = max(most, resident())
buffer.close()
print(most - before)
"""


def copy_of_a_batch(rows: Transitions) -> Operation:
    """Copies the observations of 256 rows that follow each other, other ones every time."""
    targets = (np.empty_like(rows.obs[:256]), np.empty_like(rows.next_obs[:256]))
    starts = cycle(range(0, len(rows) - 256, 256))

    def copy() -> None:
        start = next(starts)
        for column, target in zip((rows.obs, rows.next_obs), targets, strict=True):
            np.copyto(target, column[start : start + 256])

    return copy


def resident_set(folder: Path) -> Result:
    n_rows = 4 * (BUDGET_MIB << 20) // (84 * 84 * 4)

    def ours() -> float:
        done = subprocess.run(
            [sys.executable, "-c", RESIDENT, folder / "resident", str(n_rows), str(BUDGET_MIB)],
            check=True,
            capture_output=True,
            text=True,
        )
        return float(done.stdout)

    return collect(
        f"resident set, 1M images with a budget of {BUDGET_MIB} MiB",
        "MiB",
        {OURS: ours},
        [AtMost(BUDGET_MIB, "MiB")],
        note=f"{n_rows} rows of 84x84x4 uint8 pushed, 25,600 drawn",
    )
