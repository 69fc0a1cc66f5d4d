"""The numbers of a report are those of the run's files."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import sharpwave as sw
from sharpwave.pages.report import write_comparison, write_learning_curve, write_report
from tests.unit.pages.report_pages import ReportPage, value_of
from tests.unit.runs.runs import rows, write_lines, write_run

TITLES = {
    "policy_loss": "Policy loss",
    "value_loss": "Value loss",
    "entropy": "Entropy",
    "approx_kl": "KL divergence",
    "clip_fraction": "Clip fraction",
    "explained_variance": "Explained variance",
    "learning_rate": "Learning rate",
    "mean_length": "Episode length",
    "sps": "Steps per second",
    "loss": "Loss",
    "grad_norm": "Gradient norm",
}


def logged(folder: Path) -> dict[str, list[float]]:
    """Every column of metrics.csv, where it has a value."""
    with (folder / "metrics.csv").open() as file:
        read = list(csv.DictReader(file))
    return {name: [float(row[name]) for row in read if row[name]] for name in read[0]}


def close(text: str, value: float, digits: int = 2) -> bool:
    return value_of(text) == pytest.approx(value, rel=0.6 * 10.0**-digits)


def metric_lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.long
def test_every_number_of_a_report_is_in_the_files_of_the_run(tmp_path: Path) -> None:
    """Captions, labels and tooltips showed the end of an exponential average as the last value."""
    folder = tmp_path / "run"
    algo = sw.PPO("CartPole-v1", n_envs=4, n_steps=8, n_epochs=1, batch_size=32, anneal_lr=True)
    callback = sw.EvalCallback(eval_freq=2_000, n_eval_episodes=3)
    algo.train(32 * 150, callbacks=callback, run_dir=folder)
    page, columns = ReportPage(folder / "report.html"), logged(folder)
    summary = json.loads((folder / "summary.json").read_text())

    titles = {name: TITLES[name] for name in columns if name in TITLES}
    assert set(page.captions) == set(titles.values())
    charts = {chart["series"][0]["name"]: chart["series"] for chart in page.charts}
    lines = metric_lines(folder)
    for name, title in titles.items():
        assert close(page.captions[title], columns[name][-1]), name
        assert close(page.labels[title].rpartition(" ")[2], columns[name][-1]), name
        (series,) = charts[title.lower()]
        shown = dict(zip(series["x"], series.get("logged", series["y"]), strict=True))
        for line in lines:
            if line["step"] in shown:
                assert shown[line["step"]] == pytest.approx(line[name], rel=1e-4), name
        assert ("moving average" in page.hints.get(title, "")) == ("logged" in series)
    assert any("logged" in chart["series"][0] for chart in page.charts)

    training, evaluated = page.charts[0]["series"]
    expected = [line["mean_return"] for line in lines if line["mean_return"] is not None]
    assert training["y"] == pytest.approx(expected, rel=1e-4)
    evaluations = [json.loads(e) for e in (folder / "evaluations.jsonl").read_text().splitlines()]
    assert evaluated["y"] == pytest.approx([one["mean"] for one in evaluations], rel=1e-4)

    table = page.table("Step")
    assert [value_of(row["Step"]) for row in table] == [e["step"] for e in evaluations][::-1]
    for row, one in zip(table, reversed(evaluations), strict=True):
        found = (one["mean"], one["std"], min(one["returns"]), max(one["returns"]))
        for name, value in zip(("Mean", "Std", "Worst", "Best"), found, strict=True):
            assert value_of(row[name]) == pytest.approx(value, abs=0.06)
        assert value_of(row["Length"]) == pytest.approx(one["mean_length"], abs=0.06)

    final, spread = page.tiles["Final evaluation"]
    assert value_of(final) == pytest.approx(evaluations[-1]["mean"], abs=0.06)
    assert value_of(spread.partition(" over ")[0]) == pytest.approx(
        evaluations[-1]["std"], rel=0.01, abs=0.06
    )
    best = max(evaluations, key=lambda one: float(one["mean"]))
    assert value_of(page.tiles["Best evaluation"][0]) == pytest.approx(best["mean"], abs=0.06)
    assert page.tiles["Best evaluation"][1] == f"at step {best['step']:,}"
    assert page.tiles["Environment steps"] == (f"{algo.timesteps:,}", f"{algo.updates:,} updates")
    assert close(page.tiles["Speed"][0], algo.timesteps / summary["wall_seconds"])


def test_last_values_are_shown_where_the_average_has_another_sign(tmp_path: Path) -> None:
    """A loss that ended positive was shown negative, because it was an average that was shown."""
    folder = write_run(tmp_path / "run")
    lines = rows(200)
    for line in lines:
        line["loss"] = -1.0
    lines[-1]["loss"] = 0.25
    write_lines(folder / "metrics.jsonl", lines)
    page = ReportPage(write_report(folder))
    assert page.captions["Loss"] == "0.25"
    assert page.labels["Loss"].endswith(" 0.25")
    assert close(page.captions["Learning rate"], lines[-1]["learning_rate"])
    assert close(page.captions["Explained variance"], lines[-1]["explained_variance"])


def test_an_average_says_of_how_many_episodes_it_is(tmp_path: Path) -> None:
    """A run of seven episodes was said to show the mean of the last hundred."""
    folder = write_run(tmp_path / "run", n_evaluations=0)
    write_lines(folder / "metrics.jsonl", [line | {"episodes": 7} for line in rows(3)])
    page = ReportPage(write_report(folder))
    assert page.tiles["Training return"][1] == "mean of the last 7 episodes"


@pytest.mark.long
def test_offline_runs_count_gradient_steps(tmp_path: Path) -> None:
    """Gradient steps of offline runs were called environment steps."""
    data = sw.OfflineDatasetBuffer(*_random_steps(64))
    folder = tmp_path / "run"
    sw.BC(data, hidden=8, batch_size=16, log_interval=5).train(20, run_dir=folder)
    page = ReportPage(folder / "report.html")
    assert page.tiles["Gradient steps"] == ("20", "")
    assert "nvironment step" not in page.text
    assert "Training return" not in page.tiles
    assert page.text.strip().startswith("BC on a dataset")
    assert json.loads((folder / "config.json").read_text())["step_unit"] == "gradient step"
    comparison = ReportPage(write_comparison([folder], tmp_path / "comparison.html"))
    assert "nvironment step" not in comparison.text


@pytest.mark.long
def test_the_picture_of_an_offline_run_counts_gradient_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.axes import Axes

    said: list[str] = []
    monkeypatch.setattr(Axes, "set_xlabel", lambda _, label, **__: said.append(label))
    write_learning_curve(write_run(tmp_path / "off", step_unit="gradient step"))
    write_learning_curve(write_run(tmp_path / "on"))
    assert said == ["gradient steps", "environment steps"]


@pytest.mark.long
@pytest.mark.parametrize(
    "told",
    [
        {"unit": 5, "subject": ["x"], "headline": "mean_return"},
        {"unit": "", "subject": {}, "headline": {"metric": 3}},
        {"unit": "<script>", "headline": {"metric": "$</script>", "lower_is_better": "no"}},
        {"unit": "steps $", "headline": {"metric": "$x", "counted_by": []}, "env": None},
    ],
)
def test_what_a_file_says_of_a_run_is_not_trusted(tmp_path: Path, told: dict[str, Any]) -> None:
    pytest.importorskip("matplotlib")
    folder = write_run(tmp_path / "run", n_updates=3, n_evaluations=1, **told)
    metric = told["headline"]["metric"] if isinstance(told["headline"], dict) else "x"
    write_lines(folder / "metrics.jsonl", [line | {str(metric): 1.0} for line in rows(3)])
    pages = [write_report(folder), write_comparison([folder], tmp_path / "comparison.html")]
    for page in pages:
        assert page.read_text().count("</script>") == 2  # numbers, and the script itself
        assert "PPO" in ReportPage(page).text
    assert write_learning_curve(folder).stat().st_size > 0


@pytest.mark.long
def test_a_run_alone_has_no_interval_and_beats_nobody(tmp_path: Path) -> None:
    """One seed got "95 % interval [500, 500]" and a probability of improvement of 100 %."""
    one = write_run(tmp_path / "ppo", seed=1_976_712_345)
    other = write_run(tmp_path / "a2c", algorithm="a2c", seed=1)
    page = ReportPage(write_comparison([one, other], tmp_path / "comparison.html"))
    assert page.tiles["PPO"][1] == "1 seed: no interval"
    assert "Probability of improvement" not in page.text
    assert "bootstrap" not in page.text
    assert [row["95 % interval"] for row in page.table("")] == ["–", "–"]
    assert [row["Std"] for row in page.table("")] == ["–", "–"]
    assert [chart["series"][0].get("low") for chart in page.charts] == [None]
    assert [row["Seed"] for row in page.table("Run")] == ["1976712345", "1"]
    alone = ReportPage(write_comparison([one], tmp_path / "comparison.html"))
    assert "1 run" in alone.text
    assert "1 seeds" not in alone.text
    assert "1 runs" not in alone.text


@pytest.mark.long
def test_an_algorithm_of_one_seed_is_not_compared_with_one_of_many(tmp_path: Path) -> None:
    many = [write_run(tmp_path / f"ppo{seed}", seed=seed) for seed in range(3)]
    more = [write_run(tmp_path / f"a2c{seed}", algorithm="a2c", seed=seed) for seed in range(3)]
    one = write_run(tmp_path / "sac", algorithm="sac")
    page = ReportPage(write_comparison([*many, *more, one], tmp_path / "comparison.html"))
    assert page.tiles["PPO"][1].startswith("IQM of 3 seeds, 95 % interval [")
    head = next(table[0] for table in page.tables if table[0][1:] == ["PPO", "A2C"])
    assert "SAC" not in head
    assert [len(chart["series"]) for chart in page.charts] == [3, 2]


@pytest.mark.long
def test_runs_of_one_seed_are_called_runs(tmp_path: Path) -> None:
    same = [write_run(tmp_path / f"run{i}", seed=3) for i in range(2)]
    page = ReportPage(write_comparison(same, tmp_path / "comparison.html"))
    assert page.tiles["PPO"][1].startswith("IQM of 2 runs,")


@pytest.mark.long
def test_a_killed_run_shows_how_far_it_came(tmp_path: Path) -> None:
    """The summary of a killed run is as old as its last checkpoint; its metrics go further."""
    folder = write_run(tmp_path / "run", n_updates=100)
    summary = {"status": "running", "timesteps": 256, "updates": 1, "wall_seconds": 0.2}
    (folder / "summary.json").write_text(json.dumps(summary))
    page = ReportPage(write_report(folder))
    assert page.tiles["Environment steps"] == ("25,600", "100 updates")
    assert page.tiles["Wall time"][0] == "20 s"
    comparison = ReportPage(write_comparison([folder], tmp_path / "comparison.html"))
    assert comparison.table("Run")[0]["Steps"] == "25,600"


def test_a_failure_of_many_lines_is_told_below_the_numbers(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    reason = "EnvironmentFailed: environment 3 failed\n" + "  deep in a traceback\n" * 50
    (folder / "summary.json").write_text(json.dumps({"status": "failed", "reason": reason}))
    page = ReportPage(write_report(folder))
    top, _, rest = page.text.partition("What went wrong")
    assert "failed: EnvironmentFailed: environment 3 failed" in top
    assert "traceback" not in top
    assert rest.count("deep in a traceback") == 50


@pytest.mark.long(but=["-100"])
@pytest.mark.parametrize("value", [10**400, -(10**400), 1e308, -1e308], ids=lambda v: str(v)[:4])
def test_numbers_beyond_reason_do_not_break_the_page(tmp_path: Path, value: float) -> None:
    folder = write_run(tmp_path / "run")
    lines = rows(5)
    lines[2]["mean_return"] = value
    write_lines(folder / "metrics.jsonl", lines)
    summary = {"timesteps": value, "wall_seconds": value, "timings": {"env": value}}
    (folder / "summary.json").write_text(json.dumps(summary))
    assert "PPO" in ReportPage(write_report(folder)).text
    assert "PPO" in ReportPage(write_comparison([folder], tmp_path / "comparison.html")).text


def _random_steps(n: int) -> tuple[Any, ...]:
    import numpy as np

    rng = np.random.default_rng(0)
    ends = np.arange(n) % 16 == 15
    obs = rng.normal(size=(n, 3)).astype(np.float32)
    actions = rng.uniform(-1, 1, (n, 1)).astype(np.float32)
    return obs, np.roll(obs, -1, 0), actions, rng.normal(size=n), ends, np.zeros(n, bool)
