"""The command answers at once, and a typo of a command gets the nearest."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sharpwave import __version__
from sharpwave.cli import main
from sharpwave.cli.main import COMMANDS


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_the_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    answer = capsys.readouterr().out
    assert all(f"  {command}" in answer for command in COMMANDS)


def test_the_version_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"sharpwave {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["trian"], "unknown command 'trian'; did you mean 'train'?"),
        (["xyzzy"], "unknown command 'xyzzy' (`sharpwave --help` lists them)"),
        (["train", "pppo", "CartPole-v1"], "unknown algorithm 'pppo'; did you mean 'ppo'?"),
        (["train", "--seed", "3"], "ALGORITHM must come first: one of ppo, a2c"),
        (
            ["train", "ppo", "CartPol-v1"],
            "unknown environment 'CartPol-v1'; did you mean 'CartPole-v1'?",
        ),
        (
            ["train", "ppo", "CartPole-v1", "--lerning-rate", "1e-3"],
            "unknown option --lerning-rate; did you mean '--learning-rate'?",
        ),
        (["train", "ppo", "CartPole-v1", "--gamma", "2"], "gamma must be between 0 and 1, got 2.0"),
        (
            ["train", "ppo", "CartPole-v1", "--n-envs", "two"],
            "n_envs must be an integer, got 'two'",
        ),
        (["train", "ppo", "CartPole-v1", "--logger", "tensorbord"], "logger must be one of"),
        (["train", "ppo"], "the following arguments are required: ENV"),
        (["train", "ppo", "CartPole-v1", "extra"], "unexpected argument 'extra'"),
        (["train", "ppo", "CartPole-v1", "--config", "no.yaml"], "No such file or directory"),
        (
            ["train", "ppo", "CartPole-v1", "--seeds", "0,0"],
            "--seeds must be different numbers such as 0,1,2, got '0,0'",
        ),
        (
            ["train", "ppo", "CartPole-v1", "--seeds", "0,1", "--seed", "3"],
            "--seed and --seeds exclude each other",
        ),
        (["train", "ppo", "FrozenLake-v1", "--preset"], "ppo has no preset for 'FrozenLake-v1'"),
        (["eval", "no/such/run"], "no/such/run does not exist"),
        (["resume", "no/such/run"], "no/such/run does not exist"),
        (["report", "no/such/run"], "no/such/run does not exist"),
        (["enjoy", "no/such/run"], "no/such/run does not exist"),
        (["dream", "no/such/run"], "no/such/run does not exist"),
        (["dream", "run", "--context", "50"], "--context must be less than --steps, 50"),
        (["eval", "run", "--episodes", "0"], "argument --episodes: must be at least 1, got 0"),
        (["list", "preset"], "unknown list 'preset'; did you mean 'presets'?"),
        (["bench", "pppo"], "unknown algorithm 'pppo'; did you mean 'ppo'?"),
    ],
)
def test_bad_input_is_explained_without_a_traceback(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("sharpwave: ")
    assert reason in said.err
    assert "Traceback" not in said.err


@pytest.mark.long
@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(command: str) -> None:
    code = (
        "import sys\n"
        "from sharpwave.cli import main\n"
        "try:\n"
        f"    status = main([{command!r}, '--help'])\n"
        "except SystemExit as end:\n"
        "    status = end.code\n"
        "assert not status, status\n"
        "assert 'torch' not in sys.modules, 'help must be fast'\n"
    )
    answer = run_python("-c", code)
    assert "usage: sharpwave " + command in answer


@pytest.mark.long
def test_the_help_of_an_algorithm_tells_what_its_options_mean() -> None:
    answer = run_python("-m", "sharpwave", "train", "ppo", "--help")
    assert "--clip-eps X, --clip-range X" in answer
    assert "Discount factor γ of future rewards. (default: 0.99)" in " ".join(answer.split())
    assert "--recurrent lstm|gru|none" in answer
    assert "--learning-rate X|adaptive" in answer
    assert "--normalize-obs [true|false|policy]" in answer


def run_python(*arguments: str) -> str:
    result = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "120"},
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_lists_are_aligned_and_keep_to_the_width_of_the_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer names pushed their lines to the right."""
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["list"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert all(len(line) <= columns for line in lines)
    named = [re.match(r"  \w+ +", line) for line in lines if line[2] != " "]
    assert len({match.end() for match in named if match}) == 1
    assert main(["train", "--help"]) == 0
    wrapped = capsys.readouterr().out.partition("Train an")[2].partition("\n\n")[0]
    assert len(wrapped.splitlines()) > 1
    assert all(len(line) <= columns for line in wrapped.splitlines())


def test_a_folder_that_holds_no_run_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert f"RUN must be a run folder, but {tmp_path} holds no run" in capsys.readouterr().err
