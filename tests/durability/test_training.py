"""Runs that are killed, interrupted or out of space, and what is left of them."""

from __future__ import annotations

import csv
import os
import random
import resource
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.runs.recorder import RunRecorder
from sharpwave.storage.run_folder import RunFolder
from tests.durability import runs
from tests.durability.runs import STEPS_PER_UPDATE, TOTAL, load, rows_of, start, wait_for_rows
from tests.envs import resumable
from tests.waiting import LONG


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted")
    runs.go_on(folder, "resumable", signals=False)
    return folder


def assert_same_run(folder: Path, other: Path, env: str = "resumable") -> None:
    """Every row and every weight is the same, bit for bit."""
    assert rows_of(folder) == rows_of(other)
    first, second = load(folder, env), load(other, env)
    np.testing.assert_array_equal(runs.weights_of(first), runs.weights_of(second))
    assert list(first.episodes.returns) == list(second.episodes.returns)


def assert_no_gaps(folder: Path) -> None:
    """A row for every update up to the last, in both files."""
    steps = [row["step"] for row in rows_of(folder)]
    assert steps == list(range(STEPS_PER_UPDATE, TOTAL + 1, STEPS_PER_UPDATE))
    with RunFolder(folder).metrics_csv.open(newline="") as file:
        assert [int(row["step"]) for row in csv.DictReader(file)] == steps


def kill_at_random(folder: Path, env: str, rng: random.Random) -> None:
    process = start(folder, env)
    wait_for_rows(folder, rng.randint(1, 10), process)
    time.sleep(rng.uniform(0, 0.01))
    process.kill()
    process.join()


@pytest.mark.long
@pytest.mark.parametrize(
    "env",
    [
        "resumable",
        "ordinary",
        *[pytest.param("resumable", marks=pytest.mark.slow, id=f"again{i}") for i in range(20)],
    ],
)
def test_a_run_that_is_killed_again_and_again_is_finished(
    env: str, uninterrupted: Path, tmp_path: Path
) -> None:
    rng = random.Random(os.urandom(8))
    for _ in range(3):
        kill_at_random(tmp_path, env, rng)
        latest = RunFolder(tmp_path).latest_checkpoint
        if latest.exists():
            algo = load(tmp_path, env)
            assert algo.timesteps % (4 * STEPS_PER_UPDATE) == 0
            assert len(rows_of(tmp_path)) >= algo.updates
    process = start(tmp_path, env)
    process.join(LONG)
    assert process.exitcode == 0
    assert_no_gaps(tmp_path)
    assert RunFolder(tmp_path).summary["status"] == "finished"
    assert not list(tmp_path.rglob("*.tmp"))
    if env == "resumable":
        assert_same_run(tmp_path, uninterrupted)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_run_at_an_update_and_it_goes_on_exactly(
    number: signal.Signals, uninterrupted: Path, tmp_path: Path
) -> None:
    runs.hold_of(tmp_path).touch()
    process = start(tmp_path, signals=True)
    wait_for_rows(tmp_path, 5, process)
    time.sleep(random.uniform(0, 0.02))
    os.kill(process.pid or 0, number)
    runs.hold_of(tmp_path).unlink()
    process.join(LONG)
    assert process.exitcode == 0
    summary = RunFolder(tmp_path).summary
    assert (summary["status"], summary["reason"]) == ("stopped", number.name)
    algo = load(tmp_path, "resumable")
    assert 0 < algo.timesteps < TOTAL
    assert algo.timesteps % STEPS_PER_UPDATE == 0
    assert len(rows_of(tmp_path)) == algo.updates
    runs.go_on(tmp_path, "resumable", signals=False)
    assert_no_gaps(tmp_path)
    assert_same_run(tmp_path, uninterrupted)


def test_an_ordinary_environment_loses_only_the_episodes_in_flight(tmp_path: Path) -> None:
    class Stop(sw.Callback):
        def on_train_batch(self, *, algo: Any, **_: Any) -> bool:
            return bool(algo.updates < 20)

    whole = runs.make("ordinary")
    whole.train(TOTAL, callbacks=Stop())
    whole.save(tmp_path / "a")
    resumed = sw.PPO.from_checkpoint(tmp_path / "a")
    np.testing.assert_array_equal(runs.weights_of(resumed), runs.weights_of(whole))
    assert resumed.normalizer.get_obs_rms().mean.tolist() == (
        whole.normalizer.get_obs_rms().mean.tolist()
    )
    assert list(resumed.episodes.returns) == list(whole.episodes.returns)
    assert (resumed.timesteps, resumed.target_timesteps) == (whole.timesteps, TOTAL)
    whole.train()
    resumed.train()
    assert resumed.timesteps == whole.timesteps == TOTAL
    assert resumed.optimizers["policy"].lr == whole.optimizers["policy"].lr


def test_a_run_that_was_saved_before_it_began_is_the_same_run(tmp_path: Path) -> None:
    first = runs.make("resumable")
    first.save(tmp_path / "a")
    second = sw.PPO.from_checkpoint(tmp_path / "a", resumable)
    first.train(10 * STEPS_PER_UPDATE)
    second.train(10 * STEPS_PER_UPDATE)
    np.testing.assert_array_equal(runs.weights_of(first), runs.weights_of(second))
    assert list(first.episodes.returns) == list(second.episodes.returns)


class Fills(sw.Callback):
    """Takes all space of a file system after some updates."""

    goes_last = True

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_batch(self, *, algo: Any, **_: Any) -> None:
        if algo.updates == 3:
            try:
                with self.path.open("wb", buffering=0) as file:
                    while file.write(bytes(1024)):
                        pass
            except OSError:
                pass


@pytest.mark.long
def test_a_full_disk_is_named_and_the_old_checkpoint_stays(small_disk: Path) -> None:
    algo = runs.make("resumable")
    recorder = RunRecorder(small_disk / "run", checkpoint_freq=1, report=False)
    with pytest.raises(OSError, match=r"No space left on device.*/disk/run/"):
        algo.train(TOTAL, callbacks=[recorder, Fills(small_disk / "filler")])
    kept = load(small_disk / "run", "resumable")
    assert kept.updates == 3
    with pytest.raises(sw.SharpwaveIOError, match=r"No space left on device.*latest\.safetensors"):
        algo.save(RunFolder(small_disk / "run").latest_checkpoint)
    assert load(small_disk / "run", "resumable").updates == 3
    assert not list(small_disk.rglob("*.tmp"))

    (small_disk / "filler").unlink()
    kept.train(callbacks=RunRecorder(small_disk / "run", report=False))
    assert_no_gaps(small_disk / "run")


def test_a_file_that_grows_too_large_is_named_and_the_old_checkpoint_stays(
    tmp_path: Path,
) -> None:
    algo = runs.make("resumable")
    algo.save(tmp_path / "a")
    before = (tmp_path / "a").read_bytes()
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, old[1]))
    try:
        with pytest.raises(sw.SharpwaveIOError, match=r"File too large.*/a'"):
            algo.save(tmp_path / "a")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert (tmp_path / "a").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
