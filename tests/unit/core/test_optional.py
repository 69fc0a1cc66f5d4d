"""Missing packages are named in one line before a run begins, with the command to install them.

A missing MuJoCo or Box2D was a traceback of 121 lines, ALE did not name its extra, and `train
--video` without pygame died at its first evaluation, `resume` in the same way.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import sharpwave as sw
from sharpwave.cli import main
from sharpwave.core.optional import EXTRAS, missing_library
from sharpwave.runs.callbacks import VideoCallback

PYPROJECT = (Path(__file__).resolve().parents[3] / "pyproject.toml").read_text()
QUICK = ["--total-timesteps", "64", "--n-envs", "1", "--n-steps", "32", "--batch-size", "32"]
OF_LIBRARY = {
    "mujoco": ("Hopper-v5", "mujoco", "gymnasium.envs.mujoco"),
    "Box2D": ("LunarLander-v3", "box2d", "gymnasium.envs.box2d"),
    "ale_py": ("ALE/Pong-v5", "atari", "ale_py"),
}


def block(monkeypatch: pytest.MonkeyPatch, *libraries: str) -> None:
    """As if they were not installed, and nothing that uses them were imported yet."""
    for name in list(sys.modules):
        if name.partition(".")[0] in libraries:
            monkeypatch.delitem(sys.modules, name)
    for library in libraries:
        monkeypatch.setitem(sys.modules, library, None)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The output of a command that does nothing."""
    capsys.readouterr()
    assert main(list(words)) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1, said.err
    assert said.err.startswith("sharpwave: ")
    return said.err


@pytest.mark.long(but=["mujoco"])
@pytest.mark.parametrize("library", OF_LIBRARY)
def test_environments_name_their_extra(
    library: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    env_id, extra, user = OF_LIBRARY[library]
    block(monkeypatch, library)
    for name in list(sys.modules):
        if name.startswith(user):
            monkeypatch.delitem(sys.modules, name)
    if library == "ale_py":
        block(monkeypatch, library)
    for algorithm in ("ppo", "dqn"):
        said = refused(capsys, "train", algorithm, env_id)
        assert f'pip install "sharpwave[{extra}]"' in said
    assert not (here / "runs").exists()
    with pytest.raises(ImportError, match=rf"sharpwave\[{extra}\]"):
        sw.PPO(env_id)
    with pytest.raises(ImportError, match=rf"sharpwave\[{extra}\]"):
        sw.PPO(env_id, env_mode="sync")


@pytest.mark.long
def test_a_film_is_tried_out_before_the_first_step(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("imageio_ffmpeg")
    command = ["train", "ppo", "CartPole-v1", *QUICK, "--run-dir", "run"]
    with monkeypatch.context() as without:
        block(without, "pygame")
        assert "sharpwave[classic]" in refused(capsys, *command, "--video")
        assert not (here / "run").exists()
        with pytest.raises(ImportError, match=r"sharpwave\[classic\]"):
            sw.PPO("CartPole-v1").train(
                64, callbacks=VideoCallback(here / "v", 10), run_dir=here / "python"
            )
    with monkeypatch.context() as without:
        block(without, "imageio_ffmpeg")
        assert "sharpwave[video]" in refused(capsys, *command, "--video")
        assert not (here / "run").exists()
    assert main([*command, "--video", "--quiet"]) == 0
    with monkeypatch.context() as without:
        block(without, "pygame")
        said = refused(capsys, "resume", "run", "--total-timesteps", "128")
        assert "sharpwave[classic]" in said
        assert "sharpwave[classic]" in refused(capsys, "enjoy", "run")
        assert "sharpwave[classic]" in refused(capsys, "enjoy", "run", "--record", "film.mp4")
    assert not (here / "film.mp4").exists()


@pytest.mark.parametrize(
    ("library", "extra", "words"),
    [
        ("tensorboard", "tensorboard", ["--logger", "tensorboard"]),
        ("wandb", "wandb", ["--logger", "wandb"]),
        ("mlflow", "mlflow", ["--logger", "mlflow"]),
    ],
)
def test_loggers_are_found_before_a_folder_is_made(
    library: str,
    extra: str,
    words: list[str],
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    block(monkeypatch, library)
    said = refused(capsys, "train", "ppo", "CartPole-v1", *QUICK, *words)
    assert f"sharpwave[{extra}]" in said
    assert not (here / "runs").exists()


def test_files_name_their_extra(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File("a.hdf5", "w") as file:
        file["observations"] = [[1.0]]
    block(monkeypatch, "h5py")
    assert "sharpwave[hdf5]" in refused(capsys, "convert", "a.hdf5", "b.npz")
    assert "sharpwave[hdf5]" in refused(capsys, "train", "bc", "--dataset", "a.hdf5")
    assert not (here / "runs").exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "gamma: [0.9\n  lr: {\n"),
        ("a.yaml", "gamma: 0.9\n\tlr: 1\n"),
        ("a.yaml", "- 1\n"),
        ("a.toml", "gamma = \n"),
        ("a.json", '{"gamma": '),
        ("a.json", "[" * 100_000),
    ],
)
def test_a_broken_file_of_options_is_one_line(
    name: str, text: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Broken YAML was eight lines, and the refused run left a folder."""
    Path(name).write_text(text)
    assert name in refused(capsys, "train", "ppo", "CartPole-v1", "--config", name)
    assert not (here / "runs").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--gamma", "2"],
        ["--backend", "native", "--recurrent", "lstm"],
        ["--device", "cuda:99"],
        ["--env-mode", "native", "--env-kwargs", "nothing=1"],
    ],
)
def test_a_refused_run_leaves_no_folder(
    words: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(capsys, "train", "ppo", "CartPole-v1", *words)
    assert not (here / "runs").exists()


def test_every_extra_that_is_named_exists() -> None:
    section = PYPROJECT.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    extras = set(re.findall(r"^(\w+) = ", section, re.M))
    assert set(EXTRAS.values()) <= extras
    assert {"mujoco", "box2d", "classic"} <= extras
    assert set(re.findall(r"\w+", " ".join(re.findall(r"sharpwave\[(.*?)\]", section)))) == (
        extras - {"all"}
    )


def test_other_errors_are_not_about_libraries() -> None:
    def fails() -> Any:
        raise ModuleNotFoundError("no my_module", name="my_module")

    assert missing_library(ValueError("mujoco"), "x") is None
    with pytest.raises(sw.envs.EnvironmentFailed):
        sw.make_vec_env(fails, 1)
    unknown = gymnasium.error.DependencyNotInstalled("jax is not installed, run `pip install jax`")
    assert "pip install jax" in str(missing_library(unknown, "My-v0"))
