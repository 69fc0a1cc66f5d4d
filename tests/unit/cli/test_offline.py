"""Runs from a dataset by the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.cli import main
from sharpwave.storage.checkpoints import read_checkpoint

QUICK = ["--hidden", "8,8", "--batch-size", "16", "--eval-episodes", "2", "--log-interval", "10"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "pendulum"
    command = ["dataset", "Pendulum-v1", "--kind", "mixed", "--out", str(folder), "--steps", "600"]
    assert main(command) == 0
    return folder


def steps_of(run_dir: Path) -> int:
    _, state = read_checkpoint(run_dir / "checkpoints" / "latest.safetensors")
    return int(state["timesteps"])


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["iql", "cql", "td3_bc", "bc"])
def test_a_run_with_evaluations(
    algorithm: str, dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = tmp_path / "run"
    command = ["train", algorithm, "--dataset", str(dataset), "--eval-env", "Pendulum-v1"]
    options = ["--n-gradient-steps", "50", "--run-dir", str(run_dir), "--seed", "42"]
    assert main([*command, *options, *QUICK]) == 0
    said = capsys.readouterr().out
    backend = "native" if algorithm == "td3_bc" else "torch"
    assert f"{algorithm} on 600 steps of data, seed 42, {backend} backend" in said
    assert "evaluation: " in said
    assert "\n50 gradient steps in " in said
    lines = (run_dir / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [10, 20, 30, 40, 50]
    assert steps_of(run_dir) == 50
    assert (run_dir / "report.html").exists()
    assert main(["eval", str(run_dir), "--episodes", "2"]) == 0
    assert f"{algorithm} on Pendulum-v1, " in capsys.readouterr().out


@pytest.mark.long
def test_a_run_without_an_environment_is_made_longer(dataset: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    options = ["--total-timesteps", "20", "--run-dir", str(run_dir), "--quiet", *QUICK]
    assert main(["train", "bc", "--dataset", str(dataset), *options]) == 0
    assert not (run_dir / "evaluations.jsonl").exists()
    assert main(["resume", str(run_dir), "--total-timesteps", "30", "--quiet"]) == 0
    assert steps_of(run_dir) == 30


@pytest.mark.long
def test_a_run_of_a_program_is_made_longer(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = sw.BC(dataset, hidden=8, batch_size=16)
    named.train(10, run_dir=tmp_path / "named")
    resume = ["--total-timesteps", "20", "--quiet"]
    assert main(["resume", str(tmp_path / "named"), *resume]) == 0
    assert steps_of(tmp_path / "named") == 20

    in_memory = sw.BC(named.dataset, hidden=8, batch_size=16)
    in_memory.train(10, run_dir=tmp_path / "in_memory")
    assert main(["resume", str(tmp_path / "in_memory"), *resume]) == 2
    assert "learned from data in memory" in capsys.readouterr().err


@pytest.mark.long
def test_bad_arguments_are_named(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = ["--run-dir", str(tmp_path / "run")]
    assert main(["train", "iql", *run_dir]) == 2
    assert "--dataset" in capsys.readouterr().err
    assert main(["train", "iql", "--dataset", str(tmp_path / "absent"), *run_dir]) == 2
    assert "absent" in capsys.readouterr().err
    command = ["train", "iql", "--dataset", str(dataset), "--run-dir", str(tmp_path / "other")]
    assert main([*command, "--eval-env", "CartPole-v1"]) == 2
    assert "continuous" in capsys.readouterr().err
    assert main(["bench", "iql", "Pendulum-v1"]) == 2
    assert "dataset" in capsys.readouterr().err


def test_help_names_what_is_special(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "iql", "--help"])
    said = capsys.readouterr().out
    assert "--dataset DATA" in said
    assert "--expectile" in said


@pytest.mark.long
def test_a_file_of_another_library(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    np.savez(
        tmp_path / "steps.npz",
        observations=generator.normal(size=(60, 3)).astype(np.float32),
        actions=generator.uniform(-1, 1, (60, 1)).astype(np.float32),
        rewards=np.zeros(60, np.float32),
        terminals=np.arange(60) % 20 == 19,
    )
    run_dir = tmp_path / "run"
    options = ["--total-timesteps", "10", "--run-dir", str(run_dir), "--quiet", *QUICK]
    assert main(["train", "td3_bc", "--dataset", str(tmp_path / "steps.npz"), *options]) == 0
    assert steps_of(run_dir) == 10
