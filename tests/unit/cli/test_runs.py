"""Whole runs by the command line: train, evaluate, interrupt, resume, report, film."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import sharpwave as sw
from sharpwave.cli import main
from sharpwave.storage.checkpoints import read_checkpoint
from sharpwave.types import Array
from tests.unit.pages.report_pages import ReportPage

QUICK = ["--n-envs", "2", "--n-steps", "64", "--batch-size", "64", "--n-epochs", "1"]
QUICK += ["--eval-episodes", "2"]


def train(run_dir: Path, *options: str, env: str = "CartPole-v1") -> int:
    return main(["train", "ppo", env, "--run-dir", str(run_dir), *QUICK, *options])


def steps_of(run_dir: Path) -> int:
    _, state = read_checkpoint(run_dir / "checkpoints" / "latest.safetensors")
    return int(state["timesteps"])


def weights_of(checkpoint: Path) -> Array:
    return sw.PPO.from_checkpoint(checkpoint).learner.block.copy()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("runs") / "finished"
    assert train(run_dir, "--total-timesteps", "256", "--quiet") == 0
    return run_dir


@pytest.mark.long
def test_a_run_leaves_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = tmp_path / "run"
    options = ["--total-timesteps", "256", "--gamma", "0.9", "--eval-freq", "100", "--seed", "42"]
    assert train(run_dir, *options) == 0
    said = capsys.readouterr()
    assert "ppo on 2 x CartPole-v1, seed 42, native backend, to 256 steps" in said.out
    assert f"report: {run_dir / 'report.html'}" in said.out
    assert "over 2 episodes" in said.out
    assert said.err == ""
    assert (run_dir / "report.html").is_file()
    assert json.loads((run_dir / "config.json").read_text())["config"]["gamma"] == 0.9
    evaluations = (run_dir / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in evaluations] == [128, 256]


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_anew_as_it_was(
    tmp_path: Path,
) -> None:
    run_dir = tmp_path / "run"
    assert train(run_dir, "--total-timesteps", "256", "--quiet") == 0  # its seed is drawn
    latest, summary = run_dir / "checkpoints/latest.safetensors", run_dir / "summary.json"
    before = weights_of(latest)
    latest.unlink()
    summary.write_text(json.dumps({**json.loads(summary.read_text()), "status": "running"}))
    assert main(["resume", str(run_dir), "--quiet"]) == 0
    assert steps_of(run_dir) == 256
    np.testing.assert_array_equal(weights_of(latest), before)  # with the seed that it had


@pytest.mark.long
def test_quiet_is_quiet(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resume", str(finished), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.long
def test_a_folder_in_use_is_refused(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(finished) == 2
    assert f"is not empty: `sharpwave resume {finished}`" in capsys.readouterr().err


@pytest.mark.long
def test_a_run_is_evaluated(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(finished), "--episodes", "3", "--seed", "1"]) == 0
    said = capsys.readouterr().out
    assert "best.safetensors: ppo on CartPole-v1" in said
    assert "over 3 episodes" in said
    checkpoint = finished / "checkpoints" / "latest.safetensors"
    assert main(["eval", str(checkpoint), "--episodes", "3", "--stochastic"]) == 0
    assert "latest.safetensors: ppo on CartPole-v1, 256 steps" in capsys.readouterr().out


@pytest.mark.long
def test_another_environment_must_fit(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(finished), "--env", "Acrobot-v1"]) == 2
    assert "must have the observation space of the checkpoint" in capsys.readouterr().err


@pytest.mark.long
def test_a_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = tmp_path / "run"
    assert train(run_dir, "--total-timesteps", "128", "--quiet") == 0
    assert main(["resume", str(run_dir)]) == 0
    assert f"{run_dir}: complete at 128 steps" in capsys.readouterr().out
    assert main(["resume", str(run_dir), "--total-timesteps", "256"]) == 0
    assert "from 128 to 256 steps" in capsys.readouterr().out
    assert steps_of(run_dir) == 256


@pytest.mark.long
def test_a_run_without_a_plan_goes_on(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    assert train(run_dir, "--total-timesteps", "128", "--quiet") == 0
    (run_dir / "plan.json").unlink()
    assert main(["resume", str(run_dir), "--total-timesteps", "256", "--quiet"]) == 0
    assert steps_of(run_dir) == 256


@pytest.mark.long
def test_seeds_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = tmp_path / "run"
    assert train(run_dir, "--total-timesteps", "128", "--seeds", "3,5") == 0
    assert f"comparison of 2 seeds: {run_dir / 'comparison.html'}" in capsys.readouterr().out
    seeds = [json.loads((run_dir / f"seed_{n}/config.json").read_text())["seed"] for n in (3, 5)]
    assert seeds == [3, 5]
    other = tmp_path / "other.html"
    assert main(["report", str(run_dir), "--out", str(other)]) == 0
    assert other.is_file()


@pytest.mark.long
def test_seeds_that_were_not_begun_are_trained_by_resume(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    assert train(run_dir, "--total-timesteps", "128", "--seeds", "0", "--quiet") == 0
    plan = json.loads((run_dir / "plan.json").read_text())
    (run_dir / "plan.json").write_text(json.dumps({**plan, "seeds": [0, 1]}))
    assert main(["resume", str(run_dir), "--quiet"]) == 0
    assert steps_of(run_dir / "seed_1") == 128


def test_the_report_is_written_anew(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (finished / "report.html").unlink()
    assert main(["report", str(finished)]) == 0
    assert capsys.readouterr().out == f"report: {finished / 'report.html'}\n"
    assert (finished / "report.html").is_file()


@pytest.mark.long
def test_a_policy_is_filmed(finished: Path, tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    film = tmp_path / "film.mp4"
    assert main(["enjoy", str(finished), "--episodes", "1", "--record", str(film)]) == 0
    assert film.stat().st_size > 1000


def test_a_window_opens(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert main(["enjoy", str(finished), "--episodes", "1"]) == 0


def test_a_machine_without_a_screen_is_told_to_film(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "none_of_these")
    assert main(["enjoy", str(finished), "--episodes", "1"]) == 2
    said = capsys.readouterr().err
    assert "--record FILE.mp4" in said
    assert said.count("\n") == 1


def test_speed_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "a2c", "CartPole-v1", "--steps", "80", "--repeats", "2"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("a2c on 8 x CartPole-v1 (preset, native backend): ")
    assert "steps/s, median of 2" in said


@pytest.mark.parametrize("what", ["algorithms", "presets", "envs"])
def test_what_there_is_is_listed(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", what]) == 0
    found = capsys.readouterr().out
    assert ("ppo" if what == "algorithms" else "CartPole-v1") in found


class Bomb(gymnasium.Env[Any, Any]):
    """Works for a while."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)
    steps = 0

    def reset(self, **_: Any) -> tuple[int, dict[str, Any]]:
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps > 100:
            raise RuntimeError("the fuse has burnt down")
        return 0, 0.0, self.steps % 10 == 0, False, {}


@pytest.mark.long
def test_a_failing_environment_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = gymnasium.envs.registration.EnvSpec("Bomb-v0", entry_point=lambda **_: Bomb())
    monkeypatch.setitem(gymnasium.registry, "Bomb-v0", spec)
    assert train(tmp_path / "run", "--eval-freq", "0", "--quiet", env="Bomb-v0") == 1
    assert "the fuse has burnt down" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize(("name", "status"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_signal_saves_and_says_how_to_go_on(name: str, status: int, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    command = ["train", "ppo", "CartPole-v1", "--total-timesteps", "100_000_000", *QUICK]
    command += ["--run-dir", str(run_dir), "--eval-freq", "0", "--checkpoint-freq", "128"]
    process = subprocess.Popen(
        [sys.executable, "-m", "sharpwave", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    while not list(run_dir.glob("checkpoints/*")):
        assert process.poll() is None
    process.send_signal(signal.Signals[name])
    _, complaints = process.communicate(timeout=60)
    assert process.returncode == status, complaints
    assert f"stopped by {name} at " in complaints
    assert f"go on with: sharpwave resume {run_dir}" in complaints
    reached = steps_of(run_dir)
    assert main(["resume", str(run_dir), "--total-timesteps", str(reached + 64), "--quiet"]) == 0
    assert steps_of(run_dir) >= reached + 64


@pytest.mark.long
def test_terminal_and_report_tell_the_same_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The terminal counted the seconds of the report itself too, and rounded otherwise."""
    run_dir = tmp_path / "run"
    assert train(run_dir, "--total-timesteps", "256") == 0
    said = re.search(r"^256 steps in (.+)$", capsys.readouterr().out, re.MULTILINE)
    page = ReportPage(run_dir / "report.html")
    assert said is not None
    assert said[1] == page.tiles["Wall time"][0]


@pytest.mark.long(only=["command1-comparison of 2 runs"])
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["eval", "RUN", "--episodes", "1"], "over 1 episode\n"),
        (["report", "RUN", "RUN", "--out", "OUT"], "comparison of 2 runs"),
    ],
)
def test_one_is_not_many(
    finished: Path,
    tmp_path: Path,
    command: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One seed was "1 seeds", and one episode "1 episodes"."""
    out = str(tmp_path / "comparison.html")
    words = {"RUN": str(finished), "OUT": out}
    assert main([words.get(word, word) for word in command]) == 0
    assert said in capsys.readouterr().out
