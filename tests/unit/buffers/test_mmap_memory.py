"""Pages of a folder in memory, and the return of those that are not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BEING_WRITTEN = 8
"""MiB that two threads may bring into memory at the same moment."""

RESIDENT = """
import sys
import numpy as np
from sharpwave import MmapReplayBuffer

def resident():
    with open("/proc/self/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return sum(int(fields[key].split()[0]) for key in ("RssFile", "RssShmem")) / 1024

path, size, rows, budget = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
FIELDS = {"obs": ("uint8", (size, size, 4)), "action": "int64", "reward": "float32",
          "terminated": "bool", "truncated": "bool"}
buffer = MmapReplayBuffer(100, 1_000_000, fields=FIELDS, n_envs=1, cold_path=path,
                          resident_bytes=budget << 20)

def push(first):
    numbers = np.arange(first, first + 101)
    obs = np.zeros((101, size, size, 4), np.uint8)
    obs[:] = (numbers % 251)[:, None, None, None]
    zeros = np.zeros(100)
    buffer.push_batch(obs[:-1], obs[1:], zeros, numbers[:-1], zeros, zeros)

push(0)
buffer.sample(10)
before, most = resident(), 0.0
for first in range(100, rows, 100):
    push(first)
    most = max(most, resident())
for _ in range(60):
    batch = buffer.sample(128)
    expected = batch["rewards"] % 251
    assert (batch["obs"] == expected[:, None, None, None]).all()
    assert (batch["next_obs"] == ((batch["rewards"] + 1) % 251)[:, None, None, None]).all()
    most = max(most, resident())
assert len(buffer) == rows
buffer.close()
print(most - before)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("size", "rows", "budget"),
    [(40, 20_000, 40), pytest.param(84, 40_000, 256, marks=pytest.mark.slow)],
)
def test_the_resident_set_stays_within_its_budget(
    size: int, rows: int, budget: int, tmp_path: Path
) -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("this system does not tell")
    assert rows * size * size * 4 > 2 * budget << 20
    done = subprocess.run(
        [sys.executable, "-c", RESIDENT, str(tmp_path / "a"), str(size), str(rows), str(budget)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < budget + BEING_WRITTEN
