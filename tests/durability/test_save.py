"""Saves survive kills and failures, and do not need the memory twice."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave import PrioritizedReplayBuffer, SharpwaveIOError
from tests.durability.saves import filled, run, state_of

KILL_AT_STEP = """
import os, shutil, signal, sys
from pathlib import Path
from sharpwave import PrioritizedReplayBuffer
from tests.durability.saves import filled, state_of

OWNERS = {"fsync": os, "open": os, "rename": Path, "mkdir": Path, "rmtree": shutil}

def kill_at(fatal):
    step = 0

    def counted(function):
        def wrapper(*args, **kwargs):
            nonlocal step
            for before in (True, False):
                if step == fatal:
                    os.kill(os.getpid(), signal.SIGKILL)
                step += 1
                if before:
                    result = function(*args, **kwargs)
            return result
        return wrapper

    for name, owner in OWNERS.items():
        setattr(owner, name, counted(getattr(owner, name)))

states = [state_of(filled(1)), state_of(filled(2))]
seen, step, killed = set(), 0, True
while killed:
    folder = Path(sys.argv[1]) / str(step)
    filled(1).save(folder)
    child = os.fork()
    if child == 0:
        kill_at(step)
        filled(2).save(folder)
        os._exit(0)
    killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
    seen.add(states.index(state_of(PrioritizedReplayBuffer.load(folder))))
    filled(3).save(folder)
    assert len(list(folder.iterdir())) == 3, "rests of the killed save stay"
    step += 1
assert seen == {0, 1} and step > 20, (seen, step)
"""


@pytest.mark.long
def test_a_kill_at_any_step_of_a_save_leaves_the_old_or_the_new_state(tmp_path: Path) -> None:
    result = run(KILL_AT_STEP, str(tmp_path))
    assert result.returncode == 0, result.stderr


KILL_AT_RANDOM = """
import os, random, signal, sys, time
import numpy as np
from sharpwave import PrioritizedReplayBuffer
from tests.durability.saves import filled

path, random_ = sys.argv[1], random.Random(5)
filled(1).save(path)
last = 1
for _ in range(30):
    child = os.fork()
    if child == 0:
        number = last
        while True:
            number += 1
            filled(number).save(path)
    time.sleep(random_.uniform(0.0, 0.1))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    loaded = PrioritizedReplayBuffer.load(path)
    batch = loaded.gather(loaded.indices())
    fields = [batch[key] for key in ("obs", "next_obs", "actions", "rewards")]
    numbers = {float(n) for field in fields for n in field.flat}
    assert len(numbers) == 1 and len(loaded) == 40, numbers
    assert min(numbers) >= last and loaded.max_priority == max(numbers), (numbers, last)
    last = int(min(numbers))
"""


@pytest.mark.long
def test_kills_at_random_moments_never_leave_a_mixture(tmp_path: Path) -> None:
    result = run(KILL_AT_RANDOM, str(tmp_path / "saved"))
    assert result.returncode == 0, result.stderr


def test_a_failure_after_the_commit_keeps_the_new_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(1).save(tmp_path / "saved")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        valid = Path.rename

        def rename_then_break(self: Path, target: Path) -> Path:
            moved = valid(self, target)
            patch.setattr(os, "fsync", fail)
            return moved

        patch.setattr(Path, "rename", rename_then_break)
        with pytest.raises(SharpwaveIOError, match="No space left"):
            filled(2).save(tmp_path / "saved")
    assert state_of(PrioritizedReplayBuffer.load(tmp_path / "saved")) == state_of(filled(2))


def test_a_failed_save_keeps_the_old_state_and_no_rests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(1).save(tmp_path / "saved")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left")))
        with pytest.raises(SharpwaveIOError, match=r"cannot save to .*saved"):
            filled(2).save(tmp_path / "saved")
    assert state_of(PrioritizedReplayBuffer.load(tmp_path / "saved")) == state_of(filled(1))
    assert len(list((tmp_path / "saved").glob("data-*"))) == 1


@pytest.mark.long
def test_loads_beside_saves_see_one_state_or_the_other(tmp_path: Path) -> None:
    filled(1).save(tmp_path / "saved")
    stop = threading.Event()

    def save_on() -> None:
        number = 1
        while not stop.is_set():
            number += 1
            filled(number).save(tmp_path / "saved")

    saver = threading.Thread(target=save_on)
    saver.start()
    try:
        for _ in range(60):
            loaded = PrioritizedReplayBuffer.load(tmp_path / "saved")
            assert len(np.unique(loaded.gather(loaded.indices())["obs"])) == 1
    finally:
        stop.set()
        saver.join()


def test_a_copied_folder_without_its_lock_loads(tmp_path: Path) -> None:
    filled(1).save(tmp_path / "saved")
    shutil.copytree(tmp_path / "saved", tmp_path / "copy")
    (tmp_path / "copy" / ".lock").unlink()
    assert len(PrioritizedReplayBuffer.load(tmp_path / "copy")) == 40


PEAK_MEMORY = """
import sys
import numpy as np
from sharpwave import ReplayBuffer

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024

buffer = ReplayBuffer(50_000, 1000, 1, n_envs=1)
rows = np.zeros((1000, 1000), np.float32)
for i in range(50):
    rows[:] = np.arange(1000)[:, None] + 1000 * i
    buffer.push_batch(rows, rows + 1, *[np.zeros(1000)] * 4)
before = peak()
buffer.save(sys.argv[1])
after_save = peak()
assert buffer.stats()["bytes"] > 190e6
del buffer
loaded = ReplayBuffer.load(sys.argv[1])
print(before, after_save - before, peak() - after_save)
"""


@pytest.mark.long
def test_saving_and_loading_do_not_hold_the_content_twice(tmp_path: Path) -> None:
    result = run(PEAK_MEMORY, str(tmp_path / "saved"))
    assert result.returncode == 0, result.stderr
    before, saving, loading = map(float, result.stdout.split())
    assert before > 180
    assert saving < 60
    assert loading < 60
