"""Several seeds in one process."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from sharpwave.cli import main
from tests.unit.cli.test_runs import QUICK, Bomb, steps_of, train

BY_THE_CLOCK = {"sps", "seconds"}


def metrics_of(run_dir: Path) -> list[dict[str, str]]:
    with (run_dir / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [{name: row[name] for name in row.keys() - BY_THE_CLOCK} for row in rows]


@pytest.mark.long
@pytest.mark.parametrize("backend", ["native", "torch"])
def test_a_seed_does_not_depend_on_those_beside_it(backend: str, tmp_path: Path) -> None:
    options = ["--total-timesteps", "512", "--quiet", "--eval-freq", "256", "--backend", backend]
    for jobs in ("1", "3"):
        assert train(tmp_path / jobs, *options, "--seeds", "0..3", "--jobs", jobs) == 0
    for seed in range(4):
        alone, beside = (metrics_of(tmp_path / jobs / f"seed_{seed}") for jobs in ("1", "3"))
        assert alone == beside
        assert len(alone) == 4


@pytest.mark.long
def test_one_report_over_the_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = tmp_path / "run"
    assert train(run_dir, "--total-timesteps", "128", "--seeds", "3,5", "--jobs", "2") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == f"comparison of 2 seeds: {run_dir / 'comparison.html'}"
    for seed in (3, 5):
        own = [line for line in said if line.startswith(f"seed {seed}: ")]
        assert "to 128 steps" in own[0]
        assert own[-1] == f"seed {seed}: report: {run_dir / f'seed_{seed}' / 'report.html'}"


@pytest.mark.long
def test_a_seed_that_fails_stops_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    def make(**_: Any) -> gymnasium.Env[Any, Any]:
        bomb = Bomb()
        bomb.steps = 0 if len(made) < 4 else -1_000_000  # two are tried out before
        made.append(bomb)
        return bomb

    spec = gymnasium.envs.registration.EnvSpec("Bomb-v0", entry_point=make)
    monkeypatch.setitem(gymnasium.registry, "Bomb-v0", spec)
    options = ["--eval-freq", "0", "--quiet", "--seeds", "0..2", "--jobs", "3"]
    options += ["--total-timesteps", "1000000"]
    assert train(tmp_path / "run", *options, env="Bomb-v0") == 1
    assert "the fuse has burnt down" in capsys.readouterr().err


@pytest.mark.long
def test_a_signal_stops_all_and_resume_goes_on_with_all(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    command = ["train", "ppo", "CartPole-v1", "--total-timesteps", "100_000_000", *QUICK]
    command += ["--run-dir", str(run_dir), "--eval-freq", "0", "--checkpoint-freq", "128"]
    command += ["--seeds", "0..2", "--jobs", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "sharpwave", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    while len(list(run_dir.glob("seed_*/checkpoints"))) < 2:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=60)
    assert process.returncode == 130, complaints
    assert complaints.count("stopped by SIGINT at ") == 2
    assert complaints.count(f"go on with: sharpwave resume {run_dir}") == 1
    target = max(steps_of(run_dir / f"seed_{seed}") for seed in (0, 1)) + 64
    assert main(["resume", str(run_dir), "--total-timesteps", str(target), "--quiet"]) == 0
    assert all(steps_of(run_dir / f"seed_{seed}") >= target for seed in range(3))
