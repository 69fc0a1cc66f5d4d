"""Predictions of a world model that a run keeps, and that its report shows."""

from __future__ import annotations

import base64
import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.pages.png import png
from sharpwave.pages.report import write_report
from sharpwave.runs.dreams import GAP, in_color, strip
from sharpwave.storage.run_folder import RunFolder
from tests.unit.agents.dreaming import Lamp, dreamer, weights
from tests.unit.pages.report_pages import ReportPage


def read_png(data: bytes) -> Any:
    image = pytest.importorskip("PIL.Image")
    return np.asarray(image.open(io.BytesIO(data)))


@pytest.fixture(scope="module")
def lamp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "lamp"
    dreamer(partial(Lamp, nested=True), train_ratio=1.5).train(100, run_dir=path)
    return path


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "cartpole"
    dreamer().train(100, run_dir=path)
    return path


def test_a_picture_is_a_png_file() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype(np.uint8)
    np.testing.assert_array_equal(read_png(png(pixels)), pixels)
    with pytest.raises(ValueError, match=r"pixels must be uint8 .*got float64 \(5, 7, 3\)"):
        png(pixels / 255.0)


def test_a_strip_has_truth_above_model_above_error() -> None:
    video = np.arange(10, dtype=np.uint8)[:, None, None, None] * np.ones((1, 4, 12, 1), np.uint8)
    video[:, :, 4:8] += 100
    video[:, :, 8:] += 200
    found = strip(video, context=3)
    assert found.shape == (12, 10 * 4 + GAP, 3)
    assert (found[:, 12 : 12 + GAP] == 255).all()
    rest = np.concatenate([found[:, :12], found[:, 12 + GAP :]], axis=1)[::4, ::4, 0]
    np.testing.assert_array_equal(rest, np.arange(10) + np.array([[0], [100], [200]]))


def test_a_long_strip_has_its_first_and_its_last_picture() -> None:
    video = np.zeros((60, 2, 6, 3), np.uint8) + np.arange(60, dtype=np.uint8)[:, None, None, None]
    found = strip(video, context=5)
    assert found.shape == (6, 16 * 2 + GAP, 3)
    assert (found[:, :2] == 0).all()
    assert (found[:, -2:] == 59).all()


def test_stacked_pictures_show_the_newest() -> None:
    stack = np.arange(4, dtype=np.uint8) * np.ones((2, 2, 4), np.uint8)
    assert (in_color(stack) == 3).all()
    assert in_color(stack).shape == (2, 2, 3)


def test_a_run_keeps_the_start_the_middle_and_the_end(lamp: Path) -> None:
    dreams = RunFolder(lamp).dreams()
    assert list(dreams) == [40, 60, 100]
    for row in dreams.values():
        assert row["context"] == 4
        picture = read_png(base64.b64decode(row["strips"]["image"]))
        assert picture.shape == (3 * 64, 8 * 64 + GAP, 3)
        level = row["curves"]["level"]["truth"][0]
        truth = np.delete(picture, np.s_[4 * 64 : 4 * 64 + GAP], axis=1)[0, ::64, 0]
        np.testing.assert_array_equal(truth, np.array(level) * 40)  # as the lamp shines
        assert row["bytes"] == {"latents": 2 * 16 + 3, "observation": 64 * 64 * 3 + 4}
        assert row["returns"]["true"] > 0


def test_keeping_predictions_changes_nothing(tmp_path: Path) -> None:
    kept, plain = dreamer(), dreamer()
    kept.train(80, run_dir=tmp_path / "run")
    plain.train(80)
    assert (tmp_path / "run" / "dreams.jsonl").is_file()
    np.testing.assert_array_equal(weights(kept), weights(plain))
    batches = [agent.loop.sample().obs.numpy() for agent in (kept, plain)]
    np.testing.assert_array_equal(*batches)


def test_a_run_that_goes_on_forgets_what_came_after(tmp_path: Path) -> None:
    path = tmp_path / "run"
    dreamer().train(80, run_dir=path)
    kept = (path / "dreams.jsonl").read_text()
    with (path / "dreams.jsonl").open("a") as file:
        file.write(json.dumps({"step": 90}) + "\n")
    agent = sw.DreamerV3.from_checkpoint(path / "checkpoints" / "latest.safetensors")
    agent.train(40, run_dir=path)
    dreams = RunFolder(path).dreams()
    assert list(dreams) == [40, 80, 120]
    assert (path / "dreams.jsonl").read_text().startswith(kept)


def test_other_agents_keep_none(tmp_path: Path) -> None:
    sw.PPO("CartPole-v1", n_steps=8, n_envs=1, batch_size=8).train(16, run_dir=tmp_path / "run")
    assert not (tmp_path / "run" / "dreams.jsonl").exists()
    page = ReportPage(tmp_path / "run" / "report.html")
    assert "What the model dreamt" not in page.text


def test_a_model_that_cannot_predict_costs_no_run(tmp_path: Path) -> None:
    class Blind(sw.DreamerV3):
        def open_loop(self, batch: Any = None, context: int | None = None) -> Any:
            raise RuntimeError("nothing to see")

    agent = dreamer()
    agent.__class__ = Blind
    with pytest.warns(UserWarning, match="no predictions of the world model are kept: nothing to"):
        agent.train(60, run_dir=tmp_path / "run")
    assert agent.timesteps == 60
    assert not (tmp_path / "run" / "dreams.jsonl").exists()


def test_the_report_shows_strips(lamp: Path) -> None:
    text = (lamp / "report.html").read_text()
    for row in RunFolder(lamp).dreams().values():
        assert f'src="data:image/png;base64,{row["strips"]["image"]}"' in text
    page = ReportPage(lamp / "report.html")
    for stage in ("Start: after 40", "Middle: after 60", "End: after 100"):
        assert f"{stage} environment steps. The model sees the first 4 observations" in page.text
    assert page.tiles["Latent state"] == ("35 B", "per step of replay")
    assert page.tiles["Observation"] == ("12 KiB", "per step of replay")


def test_the_report_shows_numbers_and_curves(cartpole: Path) -> None:
    page = ReportPage(cartpole / "report.html")
    metrics = RunFolder(cartpole).metrics()
    ratio = metrics["gradient_steps"][-1] * 4 * 8 / 100
    assert float(page.tiles["Replayed"][0]) == pytest.approx(ratio, rel=1e-2)
    assert "Predicted return" in page.tiles
    for title in ("KL divergence", "Entropy", "Imagined and true return", "Replayed steps"):
        assert title in page.labels
    assert {f"obs {i}" for i in range(4)} <= page.labels.keys()
    assert "Reconstruction loss" in page.labels
    drawn = [one for chart in page.charts for one in chart["series"]]
    names = [one["name"] for one in drawn]
    assert names.count("kl") == names.count("entropy") == 1
    last = RunFolder(cartpole).dreams()[100]["curves"]["reward"]["prediction"][0]
    models = [one["y"] for one in drawn if one["name"] == "model" and len(one["y"]) == len(last)]
    assert any(np.allclose(y, last, rtol=1e-3, atol=1e-6) for y in models)


@pytest.mark.parametrize(
    "row",
    [
        {"step": 100},
        {"step": 100, "strips": 3, "curves": [1], "bytes": "x", "returns": None, "context": {}},
        {
            "step": 100,
            "strips": {"a": '"><script>alert(1)</script>'},
            "curves": {"x": {"truth": 1}},
        },
        {"step": 100, "curves": {"x": {"truth": [[None, "y"]], "prediction": [[1.0], 2]}}},
    ],
)
def test_a_report_forgives_what_the_file_holds(cartpole: Path, tmp_path: Path, row: Any) -> None:
    for name in ("config.json", "metrics.jsonl"):
        (tmp_path / name).write_text((cartpole / name).read_text())
    (tmp_path / "dreams.jsonl").write_text(json.dumps(row) + "\n{torn")
    text = write_report(tmp_path).read_text()
    assert "What the model dreamt" in text
    assert "<script>alert" not in text
