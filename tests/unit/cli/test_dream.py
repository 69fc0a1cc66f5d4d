"""`sharpwave dream`: what the world model of a run predicts, in files."""

from __future__ import annotations

import csv
import subprocess
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import sharpwave as sw
from sharpwave.agents.played import played_sequences
from sharpwave.cli import main
from tests.unit.agents.dreaming import Lamp, dreamer, weights

LAMP = "test/Lamp-v0"


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "cartpole"
    dreamer().train(60, run_dir=path)
    return path


@pytest.fixture(scope="module", autouse=True)
def registered() -> Any:
    gymnasium.register(LAMP, entry_point=lambda **options: Lamp(**options))
    yield
    del gymnasium.registry[LAMP]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_curves_are_written(cartpole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (cartpole / "checkpoints" / "latest.safetensors").read_bytes()
    assert main(["dream", str(cartpole), "--sequences", "2", "--steps", "12"]) == 0
    said = capsys.readouterr()
    assert f"curves: {cartpole / 'dream.csv'}" in said.out
    assert "the model of 60 steps sees 5 observations of 12" in said.out
    assert said.err == ""
    rows = rows_of(cartpole / "dream.csv")
    assert [(row["sequence"], row["row"]) for row in rows] == [
        (str(b), str(t)) for b in range(2) for t in range(12)
    ]
    assert [row["seen"] for row in rows[:12]] == ["1"] * 5 + ["0"] * 7
    assert {"obs_3", "obs_3_predicted", "reward", "reward_predicted"} <= rows[0].keys()
    numbers = np.array([[float(row[f"obs_{i}"]) for i in range(4)] for row in rows])
    assert (np.abs(numbers[[0, 12]]) <= 0.05).all()  # as CartPole begins
    assert not (cartpole / "dream.mp4").exists()
    assert (cartpole / "checkpoints" / "latest.safetensors").read_bytes() == before


def test_curves_are_those_of_the_newest_checkpoint(cartpole: Path, tmp_path: Path) -> None:
    options = ["--sequences", "1", "--steps", "8", "--context", "3", "--seed", "5"]
    assert main(["dream", str(cartpole), *options, "--out", str(tmp_path)]) == 0
    agent = sw.DreamerV3.from_checkpoint(cartpole / "checkpoints" / "latest.safetensors")
    shown = agent.open_loop(played_sequences(agent, 1, 8, seed=5), context=3)
    found = [float(row["obs_2_predicted"]) for row in rows_of(tmp_path / "dream.csv")]
    np.testing.assert_allclose(found, shown.prediction[0, :, 2], rtol=1e-4, atol=1e-6)


def test_curves_are_drawn(cartpole: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    image = pytest.importorskip("PIL.Image")
    assert main(["dream", str(cartpole), "--steps", "8", "--out", str(tmp_path / "new")]) == 0
    with image.open(tmp_path / "new" / "dream.png") as picture:
        assert picture.size == (960, 960)


@pytest.mark.long
def test_images_are_filmed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    video = pytest.importorskip("imageio_ffmpeg")
    run = tmp_path / "run"
    dreamer(LAMP, train_ratio=1).train(40, run_dir=run)
    options = ["--sequences", "2", "--steps", "9", "--context", "2"]
    assert main(["dream", str(run), *options]) == 0
    assert f"film, truth | model | error: {run / 'dream.mp4'}" in capsys.readouterr().out
    words = [video.get_ffmpeg_exe(), "-v", "error", "-i", str(run / "dream.mp4")]
    words += ["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    read = subprocess.run(words, capture_output=True, check=True).stdout
    frames = np.frombuffer(read, np.uint8).reshape(-1, 2 * 64 + 4, 3 * 64, 3)
    assert len(frames) == 9
    levels = [frame[20:50, 10:50].mean() for frame in frames]  # of the truth, which is exact
    np.testing.assert_allclose(levels, [0, 40, 80, 120, 160, 200, 240, 0, 40], atol=8)
    assert frames[0][1, 50, 1] > frames[0][1, 50, 0]  # green while it sees
    assert frames[5][1, 50, 0] > frames[5][1, 50, 1]


def test_playing_for_it_leaves_the_run_alone() -> None:
    alone, watched = dreamer(n_envs=2), dreamer(n_envs=2)
    for agent in (alone, watched):
        agent.train(60)
    batch = played_sequences(watched, 3, 30)
    assert batch.obs.shape == (30, 3, 4)
    assert batch.is_first[0].all()
    assert batch.is_first[1:].sum() == batch.is_last[:-1].sum()
    for agent in (alone, watched):
        agent.train(20)
    np.testing.assert_array_equal(weights(watched), weights(alone))


def test_what_was_played_is_in_order() -> None:
    agent = dreamer(LAMP)
    batch = played_sequences(agent, 2, 16)
    levels = batch.obs[:, :, 0, 0, 0].float() / 40
    np.testing.assert_array_equal(levels[:, 0], np.arange(16) % 7)
    np.testing.assert_array_equal(batch.rewards, levels)
    np.testing.assert_array_equal(batch.is_first, levels == 0)
    np.testing.assert_array_equal(batch.is_terminal, levels == 6)
    assert not batch.prev_actions[batch.is_first].any()


def test_other_runs_have_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent = sw.PPO("CartPole-v1", n_steps=8, n_envs=1, batch_size=8)
    agent.save(tmp_path / "ppo.safetensors")
    assert main(["dream", str(tmp_path / "ppo.safetensors")]) == 2
    assert "holds ppo, which has no world model" in capsys.readouterr().err
