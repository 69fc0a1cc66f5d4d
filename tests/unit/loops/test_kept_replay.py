"""A run folder keeps its replay, so that a resumed run goes on where it was.

Resuming SAC or DQN started with an empty buffer, without a word: 60 more steps, 0 gradient steps.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.cli import main
from sharpwave.loops import replay_store
from sharpwave.runs.callbacks import EvalCallback
from sharpwave.storage.checkpoints import read_checkpoint
from sharpwave.storage.run_folder import RunFolder
from tests.unit.runs.test_run_dirs import StopAt

QUICK: dict[str, Any] = {
    "seed": 1,
    "learning_starts": 20,
    "batch_size": 8,
    "buffer_size": 500,
    "hidden": (8,),
    "log_interval": 20,
}
MAKERS: dict[str, Any] = {
    "dqn": lambda **options: sw.DQN("CartPole-v1", **{**QUICK, **options}),
    "prioritized": lambda **options: sw.DQN(
        "CartPole-v1", prioritized=True, n_step=3, **{**QUICK, **options}
    ),
    "sac": lambda **options: sw.SAC("Pendulum-v1", **{**QUICK, **options}),
    "torch": lambda **options: sw.TD3("Pendulum-v1", backend="torch", **{**QUICK, **options}),
}


@pytest.fixture(params=["in the checkpoint", "in a folder"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "in a folder":
        monkeypatch.setattr(replay_store, "KEPT_IN_CHECKPOINTS", 0)
    return str(request.param)


def weights(agent: Any) -> list[Any]:
    state = agent.state_dict()["networks"]
    return [np.asarray(array) for net in state.values() for array in net.values()]


@pytest.mark.long
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("how", ["resume", "from_checkpoint"])
def test_a_run_goes_on_bit_for_bit(kind: str, how: str, place: str, tmp_path: Path) -> None:
    make = MAKERS[kind]
    whole = make()
    whole.train(160)
    half = make()
    half.train(160, run_dir=tmp_path, callbacks=StopAt(80))
    assert half.timesteps == 80
    half.close()
    assert (tmp_path / "replay").exists() == (place == "in a folder")
    if how == "resume":
        again = make()
        again.train(160, run_dir=tmp_path, resume=True)
    else:
        again = type(half).from_checkpoint(RunFolder(tmp_path).latest_checkpoint)
        again.train(run_dir=tmp_path)
    assert len(again.buffer) == 160
    assert again.gradient_steps == whole.gradient_steps
    for one, other in zip(weights(whole), weights(again), strict=True):
        np.testing.assert_array_equal(one, other)
    again.close()


@pytest.mark.long
def test_a_killed_run_learns_at_once(place: str, tmp_path: Path) -> None:
    limit = 0 if place == "in a folder" else 1 << 20
    code = (
        "import sharpwave as sw; from sharpwave.loops import replay_store\n"
        f"replay_store.KEPT_IN_CHECKPOINTS = {limit}\n"
        f"agent = sw.DQN('CartPole-v1', **{QUICK!r})\n"
        "agent.train(600, run_dir='run')\n"
        "agent.train(10**8, run_dir='run')\n"
    )
    run = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=dict(os.environ))
    latest = RunFolder(tmp_path / "run").latest_checkpoint
    while not latest.exists():
        assert run.poll() is None
        time.sleep(0.02)
    run.send_signal(signal.SIGKILL)
    run.wait()
    agent = sw.DQN.from_checkpoint(latest)
    before = agent.gradient_steps
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* steps that came after the checkpoint")
        agent.train(60, run_dir=tmp_path / "run")
    assert agent.gradient_steps == before + 60
    assert len(agent.buffer) > 400
    agent.close()


@pytest.mark.long
def test_what_is_missing_and_what_it_costs_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first = MAKERS["sac"](keep_replay=False)
    first.train(80, run_dir=tmp_path / "run")
    first.close()
    capfd.readouterr()
    agent = sw.SAC.from_checkpoint(RunFolder(tmp_path / "run").latest_checkpoint)
    steps = agent.gradient_steps
    agent.train(15, run_dir=tmp_path / "run")
    said = capfd.readouterr().err
    assert "without its replay buffer: learning goes on after 20 new steps" in said
    assert said.count("\n") == 1
    assert agent.gradient_steps == steps
    agent.close()


@pytest.mark.long
def test_a_replay_that_was_deleted_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replay_store, "KEPT_IN_CHECKPOINTS", 0)
    first = MAKERS["sac"]()
    first.train(80, run_dir=tmp_path / "run")
    first.close()
    shutil.rmtree(tmp_path / "run/replay")
    agent = MAKERS["sac"]()
    agent.train(120, run_dir=tmp_path / "run", resume=True)
    assert "without its replay buffer" in capfd.readouterr().err
    assert len(agent.buffer) == 40
    agent.close()


@pytest.mark.long
def test_a_moved_run_folder_finds_its_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_store, "KEPT_IN_CHECKPOINTS", 0)
    first = MAKERS["sac"]()
    first.train(80, run_dir=tmp_path / "run")
    first.close()
    (tmp_path / "run").rename(tmp_path / "moved")
    agent = sw.SAC.from_checkpoint(RunFolder(tmp_path / "moved").latest_checkpoint)
    agent.train(20, run_dir=tmp_path / "moved")
    assert len(agent.buffer) == 100
    agent.close()


@pytest.mark.long
def test_a_full_disk_keeps_the_buffer_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replay_store, "KEPT_IN_CHECKPOINTS", 0)
    usage = shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    agent = MAKERS["sac"]()
    agent.train(40, run_dir=tmp_path / "run")
    assert not (tmp_path / "run/replay").exists()
    assert "has no room" in capfd.readouterr().err
    agent.close()


@pytest.mark.long
def test_only_the_newest_checkpoint_holds_the_steps(tmp_path: Path) -> None:
    agent = MAKERS["sac"]()
    agent.train(80, run_dir=tmp_path, callbacks=EvalCallback(eval_freq=40, n_eval_episodes=1))
    folder = RunFolder(tmp_path)
    kept = [read_checkpoint(path)[1] for path in (folder.latest_checkpoint, folder.best_checkpoint)]
    assert [state["learner"]["buffer"] is None for state in kept] == [False, True]
    agent.close()


@pytest.mark.long
def test_the_command_line_goes_on_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = str(tmp_path / "run")
    options = ["--learning-starts", "20", "--batch-size", "8", "--hidden", "8", "--eval-freq", "0"]
    command = ["train", "sac", "Pendulum-v1", "--run-dir", run, "--total-timesteps", "80"]
    assert main([*command, "--no-preset", *options]) == 0
    assert main(["resume", run, "--total-timesteps", "140"]) == 0
    assert "without its replay" not in capfd.readouterr().err
    _, state = read_checkpoint(RunFolder(run).latest_checkpoint)
    assert state["learner"]["gradient_steps"] == 140 - 20 + 1  # one at step 20 itself
