"""Datasets are made on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from sharpwave.cli import main
from sharpwave.datasets import read_description


@pytest.mark.long
def test_a_scripted_dataset_is_made_and_summed_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "cart"
    command = ["dataset", "CartPole-v1", "--kind", "expert", "--out", str(out), "--steps", "1000"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert said == f"expert: 2 episodes, 1,000 steps, return 500.0 ± 0.0, score 100.0: {out}\n"
    assert main(command) == 2
    assert "overwrite replaces it" in capsys.readouterr().err
    assert main([*command, "--overwrite", "--seed", "1"]) == 0
    assert read_description(out)["seed"] == 1


@pytest.mark.long
def test_several_kinds_become_several_folders(tmp_path: Path) -> None:
    out = tmp_path / "cart"
    command = ["dataset", "CartPole-v1", "--out", str(out), "--steps", "50"]
    assert main([*command, "--kind", "random, mixed"]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["mixed", "random"]


@pytest.mark.long
def test_training_makes_the_sets_of_d4rl(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "small.yaml"
    config.write_text("hidden: [16, 16]\nlearning_starts: 100\nlog_interval: 100\ntrain_freq: 10\n")
    out = tmp_path / "pendulum"
    command = ["dataset", "Pendulum-v1", "--by", "sac", "--out", str(out), "--steps", "200"]
    command += ["--timesteps", "400", "--eval-freq", "200", "--config", str(config)]
    assert main(command) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "training sac: 100 of 400 steps"
    assert [line.partition(":")[0] for line in said[4:]] == [
        "random",
        "medium",
        "medium-replay",
        "expert",
    ]
    assert (out / "training" / "report.html").exists()
    assert main([*command, "--kind", "full-replay"]) == 0
    assert "full-replay: 2 episodes, 400 steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["CartPol-v1"], "unknown environment 'CartPol-v1'; did you mean 'CartPole-v1'?"),
        (["CartPole-v1", "--kind", "expect"], "unknown kind 'expect'; did you mean 'expert'?"),
        (["CartPole-v1", "--kind", "full-replay"], "unknown kind 'full-replay'"),
        (["CartPole-v1", "--by", "sca"], "unknown maker 'sca'; did you mean 'sac'?"),
        (["CartPole-v1", "--by", "sac"], "action_space must be Box for sac"),
        (["CartPole-v1", "--timesteps", "5"], "--timesteps goes with --by sac"),
        (["Pendulum-v1", "--by", "sac", "--overwrite"], "--overwrite goes with --by scripted"),
        (["Pendulum-v1", "--by", "sac", "--medium", "x"], "must be a number, got 'x'"),
    ],
)
def test_bad_input_is_explained(
    arguments: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dataset", *arguments, "--out", str(tmp_path / "x")]) == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "x" / "random").exists()
