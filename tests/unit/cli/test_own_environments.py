"""The command line trains an environment of the user's.

`sharpwave train ppo mymod:My-v0` was refused though Python takes the id, and there was no way to
give arguments, wrappers or a module that registers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

from sharpwave.cli import main
from sharpwave.cli.environment import parse_env_kwargs
from sharpwave.cli.terminal import UserError
from sharpwave.storage.checkpoints import read_header

MODULE = """
    import gymnasium
    import numpy as np

    MADE = []


    class Walk(gymnasium.Env):
        metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
        observation_space = gymnasium.spaces.Box(-1, 1, (2,))
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self, size=3, mode="easy", render_mode=None):
            MADE.append((size, mode))
            self.size, self.render_mode = size, render_mode

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.left = self.size
            return np.zeros(2, np.float32), {}

        def step(self, action):
            self.left -= 1
            return np.zeros(2, np.float32), float(action), self.left == 0, False, {}

        def render(self):
            return np.zeros((16, 16, 3), np.uint8)


    class Tenfold(gymnasium.RewardWrapper):
        def reward(self, reward):
            return 10 * reward


    class Plus(gymnasium.RewardWrapper):
        def reward(self, reward):
            return reward + 1


    gymnasium.register("OwnWalk-v0", entry_point=Walk)
"""
QUICK = ["--n-envs", "2", "--n-steps", "16", "--batch-size", "16", "--n-epochs", "1"]
QUICK += ["--total-timesteps", "32", "--eval-episodes", "2", "--seed", "1"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module that is not installed."""
    (tmp_path / "own_walk.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", ".")])
    yield tmp_path
    sys.modules.pop("own_walk", None)
    gymnasium.registry.pop("OwnWalk-v0", None)


def made() -> set[tuple[int, str]]:
    return set(sys.modules["own_walk"].MADE)


def lengths(run: Path) -> set[int]:
    rows = (run / "evaluations.jsonl").read_text().splitlines()
    return {length for row in rows for length in json.loads(row)["lengths"]}


@pytest.mark.long
def test_an_id_with_a_module(here: Path) -> None:
    assert main(["train", "ppo", "own_walk:OwnWalk-v0", "--run-dir", "run", *QUICK]) == 0
    assert lengths(here / "run") == {3}
    assert json.loads((here / "run/config.json").read_text())["env"] == "own_walk:OwnWalk-v0"


@pytest.mark.long
def test_a_module_that_registers(here: Path) -> None:
    command = ["train", "ppo", "OwnWalk-v0", "--import", "own_walk", "--run-dir", "run", *QUICK]
    assert main(command) == 0
    assert lengths(here / "run") == {3}


@pytest.mark.long(only=["arguments0"])
@pytest.mark.parametrize(
    "arguments",
    [["size=5", "mode=hard"], ['{"size": 5, "mode": "hard"}'], ["size=5", '{"mode": "hard"}']],
)
def test_arguments_of_the_environment(arguments: list[str], here: Path) -> None:
    command = ["train", "ppo", "own_walk:OwnWalk-v0", "--run-dir", "run", *QUICK]
    assert main([*command, "--env-kwargs", *arguments]) == 0
    assert lengths(here / "run") == {5}
    assert made() == {(5, "hard")}


@pytest.mark.long
def test_wrappers_in_their_order(here: Path) -> None:
    wrappers = ["--wrapper", "own_walk:Plus", "--wrapper", "own_walk:Tenfold"]
    command = ["train", "ppo", "own_walk:OwnWalk-v0", "--run-dir", "run", *QUICK, *wrappers]
    assert main(command) == 0
    row = json.loads((here / "run/evaluations.jsonl").read_text().splitlines()[-1])
    assert set(row["returns"]) <= {30.0, 40.0, 50.0, 60.0}  # (1 or 2) times 10, three times
    header = read_header(here / "run/checkpoints/latest.safetensors")
    assert header["env"]["wrappers"] == ["own_walk:Plus", "own_walk:Tenfold"]


@pytest.mark.long
def test_each_command_takes_them_again(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("imageio_ffmpeg")
    wrapped = ["--wrapper", "own_walk:Tenfold", "--env-kwargs", "size=4"]
    command = ["train", "ppo", "own_walk:OwnWalk-v0", "--run-dir", "run", *QUICK, *wrapped]
    assert main([*command, "--video"]) == 0
    assert list((here / "run/videos").iterdir())
    again = ["--env", "own_walk:OwnWalk-v0", "--wrapper", "own_walk:Tenfold"]
    capsys.readouterr()
    for words in (["eval"], ["enjoy", "--record", "film.mp4"], ["resume"]):
        command = [words[0], "run", *words[1:]]
        if words[0] == "resume":
            command += ["--total-timesteps", "64"]
        assert main(command) == 2
        said = capsys.readouterr().err
        assert "--env own_walk:OwnWalk-v0 --wrapper own_walk:Tenfold" in said
        assert main([*command, *again]) == 0
        capsys.readouterr()
    assert (here / "film.mp4").stat().st_size > 100
    assert {size for size, _ in made()} == {4}  # the arguments are in the checkpoint


def test_the_speed_of_ones_own(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "ppo", "own_walk:OwnWalk-v0", "--steps", "64", "--repeats", "1"]
    assert main([*command, "--env-kwargs", "size=2", "--wrapper", "own_walk:Plus"]) == 0
    assert "steps/s" in capsys.readouterr().out
    assert made() == {(2, "easy")}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["no_such_module:My-v0"], "there is no module no_such_module"),
        (["own_walk:OwnWlk-v0"], "own_walk registers no environment 'OwnWlk-v0'"),
        (["CartPole-v1", "--import", "no_such_module"], "there is no module no_such_module"),
        (["CartPole-v1", "--wrapper", "own_walk"], "--wrapper must be MODULE:NAME"),
        (["CartPole-v1", "--wrapper", "own_walk:Tenfld"], "did you mean 'Tenfold'?"),
        (["CartPole-v1", "--wrapper", "own_walk:MADE"], "must take an environment"),
        (["CartPole-v1", "--env-kwargs", "size"], "--env-kwargs must be KEY=VALUE"),
        (["CartPole-v1", "--env-kwargs", "{size"], "not JSON"),
        (["CartPole-v1", "--env-kwargs", "size=5"], "size"),
    ],
)
def test_what_is_wrong_is_one_line_and_leaves_no_folder(
    options: list[str], reason: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "ppo", *options, *QUICK]) == 2
    said = capsys.readouterr()
    assert reason in said.err
    assert said.err.count("\n") == 1
    assert not (here / "runs").exists()


def test_values_are_what_they_look_like() -> None:
    given = ["a=1", "b=0.5", "c=true", "d=False", "e=null", "f=text", 'g="1"', "h=[1, 2]", "i=x=y"]
    assert parse_env_kwargs(given) == {
        "a": 1,
        "b": 0.5,
        "c": True,
        "d": False,
        "e": None,
        "f": "text",
        "g": "1",
        "h": [1, 2],
        "i": "x=y",
    }
    assert parse_env_kwargs(None) is None
    with pytest.raises(UserError):
        parse_env_kwargs(["=1"])


@pytest.mark.long
def test_the_installed_command_finds_the_current_folder(here: Path) -> None:
    """The folder of the script, not that of the user, is on the path of an installed command."""
    script = here / "bin" / "sharpwave"
    script.parent.mkdir()
    script.write_text("import sys\nfrom sharpwave.cli import main\nsys.exit(main())\n")
    for command in ([sys.executable, str(script)], [sys.executable, "-m", "sharpwave"]):
        run = f"run{len(command)}"
        words = ["train", "ppo", "own_walk:OwnWalk-v0", "--run-dir", run, "--quiet", *QUICK]
        done = subprocess.run(
            [*command, *words, "--env-mode", "async"],
            cwd=here,
            capture_output=True,
            text=True,
            check=False,
            env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        )
        assert done.returncode == 0, done.stderr
        assert lengths(here / run) == {3}
