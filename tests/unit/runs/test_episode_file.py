"""The file of episodes has each of them once, also after a kill and a resume."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.runs.recorder import RunRecorder
from sharpwave.storage.run_folder import RunFolder

ALGORITHMS: dict[str, dict[str, Any]] = {
    "PPO": {"n_envs": 4, "n_steps": 16, "batch_size": 32},
    "HybridPPO": {"n_envs": 4, "n_steps": 16, "batch_size": 32},
    "DQN": {"learning_starts": 50, "batch_size": 8, "hidden": 8, "log_interval": 60},
}
STEPS, KILLED_AT = 960, 500
PROGRAM = """
    import os, signal, sys
    import sharpwave as sw
    from sharpwave.runs.recorder import RunRecorder

    class Kill(sw.Callback):
        def on_rollout_end(self, *, step, **_):
            if step >= {killed_at}:
                os.kill(os.getpid(), signal.SIGKILL)

    agent = sw.{name}("CartPole-v1", seed=3, **{options})
    agent.train({steps}, callbacks=[Kill(), RunRecorder({folder!r}, checkpoint_freq=200)])
"""


def train(name: str, folder: Path, steps: int = STEPS, **options: Any) -> RunFolder:
    agent = getattr(sw, name)("CartPole-v1", seed=3, **ALGORITHMS[name])
    agent.train(steps, run_dir=folder, **options)
    agent.close()
    return RunFolder(folder)


def rows(folder: RunFolder) -> list[list[str]]:
    """Return, length and number of each episode; when they are told hangs on checkpoints too."""
    lines = folder.episodes_file.read_text().splitlines()
    split = [line.split(",") for line in lines]
    return [[*cells[:2], cells[4]] for cells in split]


@pytest.mark.long
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_episode_has_a_row(name: str, tmp_path: Path) -> None:
    agent = getattr(sw, name)("CartPole-v1", seed=3, **ALGORITHMS[name])
    agent.train(480, run_dir=tmp_path)
    found = RunFolder(tmp_path).episodes()
    count = agent.loop.episodes.count
    assert count > 10
    assert found["episode"].tolist() == list(range(1, count + 1))
    np.testing.assert_array_equal(found["r"], found["l"])  # CartPole pays for every step
    np.testing.assert_array_equal(found["l"][-10:], list(agent.loop.episodes.lengths)[-10:])
    assert found["l"].sum() <= agent.timesteps
    assert (np.diff(found["step"]) >= 0).all()
    assert (np.diff(found["t"]) >= 0).all()
    agent.close()


@pytest.mark.long
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_that_was_killed_has_every_episode_once(name: str, tmp_path: Path) -> None:
    recorder = RunRecorder(tmp_path / "whole", checkpoint_freq=200)
    agent = getattr(sw, name)("CartPole-v1", seed=3, **ALGORITHMS[name])
    agent.train(STEPS, callbacks=recorder)
    agent.close()
    program = PROGRAM.format(
        name=name,
        options=ALGORITHMS[name],
        folder=str(tmp_path / "killed"),
        steps=STEPS,
        killed_at=KILLED_AT,
    )
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    killed = RunFolder(tmp_path / "killed")
    before = killed.episodes()["episode"]
    train(name, killed.path, resume=True)
    assert rows(killed) == rows(recorder.folder)
    assert 0 < len(before) < len(killed.episodes()["episode"])


@pytest.mark.long
def test_rows_beyond_the_checkpoint_and_torn_ones_are_cut(tmp_path: Path) -> None:
    folder = train("PPO", tmp_path, 480)
    before = rows(folder)
    with folder.episodes_file.open("a") as file:
        file.write(f"9.0,9,1.0,576,{len(before)}\n8.0,8,1.1,576,{len(before) + 1}\n7.0,")
    train("PPO", tmp_path, resume=True)
    after = rows(folder)
    assert after[: len(before)] == before
    assert ["8.0", "8", str(len(before) + 1)] not in after
    assert folder.episodes()["episode"].tolist() == list(range(1, len(after)))


@pytest.mark.long
def test_a_run_of_an_earlier_version_goes_on_without_the_rows_it_never_had(tmp_path: Path) -> None:
    folder = train("PPO", tmp_path, 480)
    earlier = folder.episodes()["episode"][-1]
    folder.episodes_file.unlink()
    train("PPO", tmp_path, resume=True)
    assert folder.episodes()["episode"][0] == earlier + 1


def test_a_torn_line_is_not_read(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.episodes_file.write_text("r,l,t,step,episode\n1.5,3,0.1,8,1\n2.0,")
    assert {name: column.tolist() for name, column in folder.episodes().items()} == {
        "r": [1.5],
        "l": [3.0],
        "t": [0.1],
        "step": [8.0],
        "episode": [1.0],
    }


@pytest.mark.long
def test_a_run_without_environments_has_no_such_file(tmp_path: Path) -> None:
    data = sw.datasets.make_dataset("Pendulum-v1", "random", n_steps=200)
    agent = sw.BC(data, batch_size=16)
    agent.train(5, run_dir=tmp_path)
    assert not RunFolder(tmp_path).episodes_file.exists()
