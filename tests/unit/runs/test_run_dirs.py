"""Folders of runs: the one that a run gets, and those that it never touches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.algorithms.trainer import Trainer
from sharpwave.cli import main
from sharpwave.runs.callbacks import Callback
from sharpwave.storage.run_folder import FORMAT, RunFolder
from tests.unit.runs.test_files_run_no_code import SMALL

NAMES = [
    "summary.json",
    "environment.json",
    "report.html",
    "config.json",
    "metrics.csv",
    "metrics.jsonl",
    "evaluations.jsonl",
    "learning_curve.png",
    "checkpoints/latest.safetensors",
    "checkpoints/mine.txt",
    "videos/holiday.mp4",
    "replay/rows.csv",
]
FORGED = ["{}", '{"algorithm": "ppo", "env": "CartPole-v1", "seed": 1}', "mine"]


def ppo(seed: int | None = 1) -> Any:
    return sw.PPO("CartPole-v1", seed=seed, **SMALL["PPO"])


def content(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_files_of_the_user_are_never_touched(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A `run_dir` that is no run lost the user's summary.json, environment.json, report.html."""
    for number, text in enumerate(FORGED):
        mine = tmp_path / str(number)
        (mine / name).parent.mkdir(parents=True)
        (mine / name).write_text(text)
        agent = ppo()
        agent.train(16, run_dir=mine)
        agent.close()
        assert content(mine) == {mine / name: text.encode()}
        assert agent.run_dir == tmp_path / f"{number}-2"
        assert RunFolder(agent.run_dir).summary["timesteps"] == 16
        assert f"{mine} is taken: this run is in {mine}-2\n" in capfd.readouterr().err
        later = sw.PPO.from_checkpoint(RunFolder(agent.run_dir).latest_checkpoint)
        with pytest.raises(FileExistsError):
            later.train(16, run_dir=mine)
        later.close()
        assert content(mine) == {mine / name: text.encode()}


@pytest.mark.long
def test_other_files_in_the_folder_stay_and_the_run_is_beside_them(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".notes.tmp").write_text("mine too")
    agent = ppo()
    agent.train(16, run_dir=tmp_path)
    agent.train(16, run_dir=tmp_path)
    assert agent.run_dir == tmp_path
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / ".notes.tmp").read_text() == "mine too"


@pytest.mark.long
def test_the_current_folder_may_be_a_run_dir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in ("here", "here-2"):
        agent = ppo()
        agent.train(16, run_dir=".")
        assert agent.run_dir.absolute() == tmp_path / name


@pytest.mark.long
def test_a_second_run_gets_a_numbered_folder(tmp_path: Path) -> None:
    """The program of the README raised FileExistsError when it was run again."""
    for number in (1, 2, 3):
        agent = ppo()
        agent.train(16, run_dir=tmp_path / "first")
        agent.train(16, run_dir=tmp_path / "first")  # which goes on in the same folder
        folder = tmp_path / ("first" if number == 1 else f"first-{number}")
        assert agent.run_dir == folder
        assert RunFolder(folder).summary["timesteps"] == 32
        assert RunFolder(folder).metrics()["step"].tolist() == [16, 32]
        agent.close()
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.long
def test_two_that_begin_together_get_two_folders(tmp_path: Path) -> None:
    code = (
        "import sharpwave as sw\n"
        "agent = sw.PPO('CartPole-v1', n_envs=1, n_steps=16, batch_size=16, seed=1)\n"
        "agent.train(64, run_dir='first')\n"
    )
    programs = [
        subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=os.environ)
        for _ in range(3)
    ]
    assert [program.wait(120) for program in programs] == [0, 0, 0]
    folders = sorted(tmp_path.iterdir())
    assert [folder.name for folder in folders] == ["first", "first-2", "first-3"]
    assert [RunFolder(folder).summary["timesteps"] for folder in folders] == [64] * 3


class StopAt(Callback):
    def __init__(self, step: int) -> None:
        self._step = step

    def on_train_batch(self, *, step: int, **_: Any) -> bool:
        return step < self._step


def weights(agent: Any) -> list[Any]:
    return [np.asarray(array) for array in agent.policy.state_dict().values()]


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2], ids=["same seed", "another seed"])
def test_resume_goes_on_bit_for_bit(seed: int, tmp_path: Path) -> None:
    whole = ppo()
    whole.train(128)
    half = ppo()
    half.train(128, run_dir=tmp_path, callbacks=StopAt(64))
    again = ppo(seed)
    again.train(128, run_dir=tmp_path, resume=True)
    assert (again.timesteps, again.seed, again.run_dir) == (128, 1, tmp_path)
    for one, other in zip(weights(whole), weights(again), strict=True):
        np.testing.assert_array_equal(one, other)
    assert RunFolder(tmp_path).metrics()["step"].tolist() == list(range(16, 129, 16))
    assert again.train(128, run_dir=tmp_path, resume=True) == {}
    assert again.timesteps == 128


@pytest.mark.long
@pytest.mark.parametrize("kind", ["DQN", "BC"])
def test_every_loop_resumes(kind: str, tmp_path: Path) -> None:
    def make() -> Any:
        if kind == "DQN":
            return sw.DQN("CartPole-v1", seed=3, log_interval=8, **SMALL[kind])
        rng = np.random.default_rng(0)
        columns = {
            "obs": rng.random((32, 4), np.float32),
            "next_obs": rng.random((32, 4), np.float32),
            "actions": rng.integers(0, 2, 32),
            "rewards": rng.random(32),
            "terminated": np.zeros(32, bool),
        }
        return sw.BC(columns, seed=3, log_interval=8, **SMALL[kind])

    make().train(64, run_dir=tmp_path, callbacks=StopAt(32))
    again = make()
    again.train(64, run_dir=tmp_path, resume=True)
    assert again.timesteps == 64
    trainer = Trainer("ppo", "CartPole-v1", run_dir=tmp_path, **SMALL["PPO"])
    with pytest.raises(ValueError, match="holds"):
        trainer.train(64, resume=True)


@pytest.mark.long
def test_resume_without_a_run_begins_one(tmp_path: Path) -> None:
    agent = ppo()
    agent.train(32, run_dir=tmp_path / "run", resume=True)
    assert agent.run_dir == tmp_path / "run"
    assert agent.timesteps == 32
    with pytest.raises(ValueError, match="run_dir"):
        ppo().train(32, resume=True)


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, None])
def test_resume_takes_a_run_that_was_killed_before_its_first_checkpoint(
    tmp_path: Path, seed: int | None
) -> None:
    agent = ppo(seed=seed)
    agent.train(16, run_dir=tmp_path)
    (tmp_path / "checkpoints/latest.safetensors").unlink()
    summary = json.loads((tmp_path / "summary.json").read_text())
    (tmp_path / "summary.json").write_text(json.dumps({**summary, "status": "running"}))
    again = ppo(seed=seed)
    again.train(32, run_dir=tmp_path, resume=True)
    assert again.run_dir == tmp_path
    assert RunFolder(tmp_path).metrics()["step"].tolist() == [16, 32]
    assert RunFolder(tmp_path).config["seed"] == again.config.seed


@pytest.mark.long
def test_the_mark_is_in_the_configuration(tmp_path: Path) -> None:
    ppo().train(16, run_dir=tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["format"] == FORMAT
    assert RunFolder(tmp_path).is_ours


def test_a_report_does_not_replace_a_file_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"theme": "dark"}')
    (tmp_path / "report.html").write_text("mine")
    assert main(["report", str(tmp_path)]) == 2
    assert (tmp_path / "report.html").read_text() == "mine"
