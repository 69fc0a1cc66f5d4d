"""Replay in a folder: kills, stops, full disks. What was pushed is there, and nothing else."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave import FolderLockedError, MmapReplayBuffer, SharpwaveIOError
from tests.durability.saves import run
from tests.processes import stop

WRITES_ON = """
import sys
from sharpwave import MmapReplayBuffer

buffer = MmapReplayBuffer(10, 100, 300, 1, sys.argv[1])
i = 0
while True:
    buffer.push([i] * 300, i, float(i), False, False, [i] * 300)
    i += 1
    if i == 50:
        print("writing", flush=True)
"""


@pytest.mark.long
def test_a_stopped_writer_keeps_the_lock_and_readers_read(memory_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    path = memory_path / "a"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITES_ON, str(path)], env=environment, stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    try:
        writer.stdout.readline()
        reader = MmapReplayBuffer.open(path, read_only=True)
        for _ in range(5):
            stop(writer.pid)
            batch = reader.sample(20, indices=True)
            assert (batch["obs"] == batch["rewards"][:, None]).all()
            assert reader.sample(20, seed=1)["rewards"].tolist() == (
                reader.sample(20, seed=1)["rewards"].tolist()
            )
            with pytest.raises(FolderLockedError, match=str(writer.pid)):
                MmapReplayBuffer.open(path)
            writer.send_signal(signal.SIGCONT)
            newest = reader.indices()[-1]
            while reader.indices()[-1] == newest:
                time.sleep(0.001)
    finally:
        writer.kill()
        writer.communicate()
    assert len(MmapReplayBuffer.open(path)) == 100


def fill_up(buffer: MmapReplayBuffer, i: int) -> tuple[int, SharpwaveIOError]:
    """Push until the disk refuses: the next number, and what it said."""
    while True:
        try:
            buffer.push([i] * 300, i, float(i), False, False, [i] * 300)
        except SharpwaveIOError as error:
            return i, error
        i += 1


def assert_holds(buffer: MmapReplayBuffer, n: int) -> None:
    content = buffer.gather(buffer.indices())
    assert content["rewards"].tolist() == list(range(n))
    assert (content["obs"] == content["rewards"][:, None]).all()


def test_a_full_disk_refuses_a_push_and_loses_nothing(small_disk: Path) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(bytes(200_000))
    buffer = MmapReplayBuffer(10, 1000, 300, 1, small_disk / "a")
    n, error = fill_up(buffer, 0)
    assert error.errno == errno.ENOSPC
    assert "rows-0" in str(error)
    assert n > 0
    assert_holds(buffer, n)
    rows = np.zeros((500, 300))
    with pytest.raises(SharpwaveIOError):
        buffer.push_batch(rows, rows, *[np.zeros(500)] * 4)
    assert_holds(buffer, n)
    filler.unlink()
    more, _ = fill_up(buffer, n)
    assert more > n
    assert_holds(buffer, more)
    buffer.close(delete=False)
    again = MmapReplayBuffer.open(small_disk / "a", verify=True)
    assert_holds(again, more)


def test_a_disk_without_room_for_a_new_folder_is_named(small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(bytes(500_000))
    with pytest.raises(SharpwaveIOError, match="No space left"):
        MmapReplayBuffer(
            10,
            100_000,
            fields={
                "obs": "float32",
                "reward": "float32",
                "action": "int8",
                "terminated": "bool",
                "truncated": "bool",
            },
            n_envs=2,
            cold_path=small_disk / "a",
        )
    (small_disk / "filler").unlink()
    MmapReplayBuffer(10, 100, 3, 1, small_disk / "a")


TOO_LARGE = """
import errno, resource, sys
from sharpwave import MmapReplayBuffer, SharpwaveIOError

buffer = MmapReplayBuffer(10, 100, 300, 1, sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
try:
    buffer.push([1] * 300, 1, 1.0, False, False, [1] * 300)
    raise SystemExit("the push should have been refused")
except SharpwaveIOError as error:
    assert error.errno == errno.EFBIG, error
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
buffer.push([1] * 300, 1, 1.0, False, False, [1] * 300)
assert len(buffer) == 1
"""


@pytest.mark.long
def test_a_file_that_may_not_grow_refuses_a_push(memory_path: Path) -> None:
    result = run(TOO_LARGE, str(memory_path / "a"))
    assert result.returncode == 0, result.stderr


def test_power_durability_has_every_push_in_the_last_copy(memory_path: Path) -> None:
    """After a loss of power the last checksummed copy of the words counts, not the live ones."""
    buffer = MmapReplayBuffer(10, 100, 3, 1, memory_path / "a", durability="power")
    for i in range(7):
        buffer.push([i] * 3, i, float(i), False, False, [i] * 3)
    state = bytearray((memory_path / "a" / "state").read_bytes())
    assert forget_live_words(memory_path / "a", state) == 7
    plain = MmapReplayBuffer(10, 100, 3, 1, memory_path / "b")
    for i in range(7):
        plain.push([i] * 3, i, float(i), False, False, [i] * 3)
        if i == 4:
            plain.flush()
    state = bytearray((memory_path / "b" / "state").read_bytes())
    assert forget_live_words(memory_path / "b", state) == 5


def forget_live_words(path: Path, state: bytearray) -> int:
    """The number of steps in a copy of the folder after a loss of power."""
    copied = path.with_name(path.name + " after")
    subprocess.run(["cp", "-r", str(path), str(copied)], check=True)
    state[16:32] = bytes(16)  # another start of the system
    (copied / "state").write_bytes(state)
    again = MmapReplayBuffer.open(copied, verify=True)
    again.push([9] * 3, 9, 9.0, False, False, [9] * 3)
    values: Any = again.gather(again.indices())["rewards"].tolist()
    assert values == [*range(len(values) - 1), 9.0]
    return len(values) - 1
