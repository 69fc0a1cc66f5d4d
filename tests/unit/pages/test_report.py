import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sharpwave.pages.curves import Series, smoothed, thinned, x_range, y_range
from sharpwave.pages.markup import Html, join, tag
from sharpwave.pages.report import write_comparison, write_learning_curve, write_report
from sharpwave.pages.text import number, ticks
from sharpwave.types import Array
from tests.unit.runs.runs import rows, write_lines, write_run

HOSTILE = "<script>alert('&\"')</script>"

finite_floats = st.floats(allow_nan=False, allow_infinity=False, width=32)
curves = hnp.arrays(np.float64, st.integers(1, 300), elements=finite_floats)


class Page(HTMLParser):
    """The elements of a page, its text, and what it keeps for its script."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.charts: list[dict[str, Any]] = []
        self._reading_data = False
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._reading_data = tag == "script" and dict(attrs).get("id") == "data"

    def handle_data(self, data: str) -> None:
        if self._reading_data:
            self.charts = json.loads(data)["charts"]
            self._reading_data = False
        self.text += data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)


def report_of(path: Path) -> Page:
    return Page(write_report(path))


def test_report_shows_what_the_run_was_and_how_it_went(tmp_path: Path) -> None:
    page = report_of(write_run(tmp_path / "run", config={"gamma": 0.98}))
    for words in (
        "PPO on CartPole-v1",
        "finished",
        "seed 0",
        "1 May 2026, 14:03",
        "Final evaluation",
        "25,600",
        "20 s",
        "Value loss",
        "Explained variance",
        "Learning rate",
        "environment",
        "gamma",
        "0.98",
        "0123456789ab, changed",
        "a | 2 +-",
    ):
        assert words in page.text, words
    training, evaluation = page.charts[0]["series"]
    assert training["x"] == [256 * (i + 1) for i in range(100)]
    assert evaluation["x"] == [2560 * (i + 1) for i in range(5)]
    assert evaluation["low"] < evaluation["y"] < evaluation["high"]


def test_report_needs_no_other_file(tmp_path: Path) -> None:
    page = report_of(write_run(tmp_path / "run"))
    assert "http" not in re.sub(r"http-equiv|http://www.w3.org/2000/svg", "", page.source)
    for _, attributes in page.elements:
        for name in ("src", "href"):
            assert (attributes.get(name) or "data:").startswith("data:")


@pytest.mark.long
@pytest.mark.parametrize("place", ["algorithm", "env", "seed"])
def test_text_of_the_run_never_becomes_markup(tmp_path: Path, place: str) -> None:
    plain = report_of(write_run(tmp_path / "plain"))
    path = write_run(tmp_path / "hostile")
    config = json.loads((path / "config.json").read_text())
    config |= {place: HOSTILE, "config": {HOSTILE: HOSTILE}, "changed": [HOSTILE]}
    (path / "config.json").write_text(json.dumps(config))
    logged = [row | {HOSTILE: 1.0} for row in rows(10)]
    write_lines(path / "metrics.jsonl", logged)
    git = {"commit": HOSTILE, "branch": HOSTILE, "diff_stat": HOSTILE}
    facts = {"cpu": HOSTILE, "argv": [HOSTILE], "started": HOSTILE, "git": git}
    (path / "environment.json").write_text(json.dumps(facts))
    summary = {"status": "failed", "reason": HOSTILE, "timings": {HOSTILE: 1.0}, "timesteps": "x"}
    (path / "summary.json").write_text(json.dumps(summary))
    page = report_of(path)
    assert page.count("script") == plain.count("script") == 2
    assert "<script>alert" not in page.source.lower()
    assert HOSTILE.upper() in page.text.upper()
    comparison = Page(write_comparison([path, tmp_path / "plain"], tmp_path / "out.html"))
    assert comparison.count("script") == 2
    assert "<script>alert" not in comparison.source.lower()


def test_only_the_own_script_may_run_and_nothing_be_fetched(tmp_path: Path) -> None:
    page = report_of(write_run(tmp_path / "run"))
    policies = [a["content"] for _, a in page.elements if "http-equiv" in a]
    assert len(policies) == 1
    policy = policies[0] or ""
    assert "default-src 'none'" in policy
    assert re.search(r"script-src 'sha256-[\w+/]+=*';", policy)


def test_run_that_has_written_nothing_yet_gets_a_report(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    page = report_of(tmp_path)
    assert "Nothing was logged" in page.text
    assert "no end on record" in page.text
    assert page.charts == []


def test_one_row_is_a_point(tmp_path: Path) -> None:
    page = report_of(write_run(tmp_path / "run", n_updates=1, n_evaluations=0))
    assert page.charts[0]["series"][0]["x"] == [256]
    assert "Training return" in page.text


def test_numbers_that_are_not_finite_are_left_out_and_said(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    logged = rows(100)
    for row in logged[:3]:
        row["mean_return"] = None
    for row in logged[60:]:
        row["value_loss"] = float("nan")
    logged[50]["entropy"] = float("inf")
    write_lines(path / "metrics.jsonl", logged)
    page = report_of(path)
    assert page.charts[0]["series"][0]["x"][0] == 4 * 256
    assert "not finite since step 15,616" in page.text
    assert page.text.count("not finite") == 1
    assert "NaN" not in json.dumps(page.charts)


@pytest.mark.long
def test_long_runs_are_thinned_and_keep_their_extremes(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", n_updates=1)
    logged = [
        {"step": i, "mean_return": float(np.sin(i / 5000)), "loss": 0.0} for i in range(50_000)
    ]
    logged[33_333]["mean_return"] = 9.0
    write_lines(path / "metrics.jsonl", logged)
    page = report_of(path)
    series = page.charts[0]["series"][0]
    assert 500 <= len(series["x"]) <= 1000
    assert max(series["y"]) == 9.0
    assert (series["x"][0], series["x"][-1]) == (0, 49_999)
    assert len(page.source) < 400_000


def test_film_of_the_policy_is_in_the_page_unless_it_is_large(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    (path / "videos").mkdir()
    film = path / "videos" / "step 1 & 2.mp4"
    film.write_bytes(b"film")
    sources = [a["src"] or "" for name, a in report_of(path).elements if name == "video"]
    assert sources == ["data:video/mp4;base64,ZmlsbQ=="]
    film.write_bytes(bytes(5 << 20))
    page = report_of(path)
    assert page.count("video") == 0
    assert [a["href"] for name, a in page.elements if name == "a"] == [
        "videos/step%201%20%26%202.mp4"
    ]


@pytest.mark.parametrize("write", [write_report, write_learning_curve])
def test_folder_without_a_run_is_refused(tmp_path: Path, write: Any) -> None:
    with pytest.raises(FileNotFoundError, match="run_dir must be the folder of a run"):
        write(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_seeds_are_compared_by_their_interquartile_mean(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / f"run{seed}", seed=seed) for seed in range(4)]
    write_report(paths[0])
    page = Page(write_comparison(paths, tmp_path / "deep" / "comparison.html"))
    assert "PPO on CartPole-v1" in page.text
    assert "IQM of 4 seeds" in page.text
    assert "Probability of improvement" not in page.text
    curve, profile = page.charts
    assert [one["name"] for one in curve["series"]] == ["PPO"]
    assert curve["series"][0]["x"][-1] == 25_600
    assert (profile["series"][0]["y"][0], profile["series"][0]["y"][-1]) == (1, 0)
    assert [a["href"] for name, a in page.elements if name == "a"] == ["../run0/report.html"]


@pytest.mark.long
def test_algorithms_and_settings_are_told_apart(tmp_path: Path) -> None:
    paths = [
        write_run(
            tmp_path / f"{name}{gamma}{seed}", algorithm=name, seed=seed, config={"gamma": gamma}
        )
        for name, gamma in (("ppo", 0.9), ("ppo", 0.99), ("a2c", 0.9))
        for seed in range(2)
    ]
    page = Page(write_comparison(paths, tmp_path / "comparison.html"))
    names = [one["name"] for one in page.charts[0]["series"]]
    assert names == ["PPO gamma=0.9", "PPO gamma=0.99", "A2C"]
    assert "Probability of improvement" in page.text


@pytest.mark.long
def test_environments_are_compared_apart(tmp_path: Path) -> None:
    paths = [
        write_run(tmp_path / f"{env}{seed}", env=env, seed=seed)
        for env in ("CartPole-v1", "Acrobot-v1")
        for seed in range(2)
    ]
    page = Page(write_comparison(paths, tmp_path / "comparison.html"))
    assert len(page.charts) == 4
    assert "PPO on CartPole-v1, Acrobot-v1" in page.text


@pytest.mark.long
def test_runs_without_evaluations_or_episodes_are_compared_by_what_they_have(
    tmp_path: Path,
) -> None:
    bare = write_run(tmp_path / "bare", n_evaluations=0, n_updates=0, algorithm="a2c")
    trained = write_run(tmp_path / "trained", n_evaluations=0)
    page = Page(write_comparison([bare, trained], tmp_path / "comparison.html"))
    assert "last training return" in page.text
    assert "no episode ended" in page.text
    only = Page(write_comparison([bare], tmp_path / "comparison.html"))
    assert only.charts == []


def test_comparison_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="run_dirs must name at least one run"):
        write_comparison([], tmp_path / "out.html")
    with pytest.raises(FileNotFoundError, match="run_dirs must be folders of runs"):
        write_comparison([tmp_path], tmp_path / "out.html")


@pytest.mark.long(but=["0"])
@pytest.mark.parametrize("n_updates", [0, 1, 100])
def test_learning_curve_is_a_picture(tmp_path: Path, n_updates: int) -> None:
    pytest.importorskip("matplotlib")
    path = write_run(tmp_path / "run", n_updates=n_updates, env="$\\broken math")
    picture = write_learning_curve(path)
    assert picture == path / "learning_curve.png"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_picture_without_matplotlib_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    path = write_run(tmp_path / "run")
    with pytest.raises(ImportError, match=r'pip install "sharpwave\[plots\]"'):
        write_learning_curve(path)
    assert write_report(path).exists()


@given(st.text(), st.text())
def test_markup_escapes_every_text(content: str, value: str) -> None:
    made = tag("p", content, title=value)
    assert made.count("<") == made.count(">") == 2
    assert made.count('"') == 2
    assert join(Html("<br>"), content).startswith("<br>")


@given(st.floats(-1e12, 1e12), st.floats(1e-9, 1e12), st.integers(1, 10))
def test_ticks_are_round_few_and_inside(low: float, width: float, target: int) -> None:
    high = low + width
    if not high > low:
        return
    found, step = ticks(low, high, target)
    assert len(found) <= 3 * target + 1
    slack = 1e-6 * max(abs(low), abs(high), step)
    assert all(low - slack <= tick <= high + slack for tick in found)


@given(finite_floats)
def test_numbers_read_back_as_what_they_were(value: float) -> None:
    text = number(value, 6).replace("\N{MINUS SIGN}", "-").replace(",", "")
    assert float(text) == pytest.approx(value, rel=1e-4, abs=1e-300)


@given(curves, st.integers(2, 100))
def test_thinned_curves_keep_ends_and_extremes(y: Array, limit: int) -> None:
    kept = thinned(y, limit)
    assert len(kept) <= max(limit, 4)
    assert np.all(np.diff(kept) > 0)
    assert kept[0] == 0
    assert kept[-1] == len(y) - 1
    assert (y[kept].min(), y[kept].max()) == (y.min(), y.max())


@given(curves)
def test_smoothing_stays_within_the_curve_and_leaves_constants_alone(y: Array) -> None:
    smooth = smoothed(y)
    slack = 1e-6 * np.abs(y).max() + 1e-300
    assert smooth[0] == y[0]
    assert np.all((smooth >= y.min() - slack) & (smooth <= y.max() + slack))
    np.testing.assert_allclose(smoothed(np.full(500, 3.0)), 3.0)


@given(curves)
def test_ranges_hold_their_curves(y: Array) -> None:
    series = [Series(name="a", color=1, x=np.arange(len(y), dtype=float), y=y)]
    up, across = y_range(series), x_range(series)
    assert up.low <= y.min() <= y.max() <= up.high
    assert up.low < up.high
    assert across.low <= 0 <= len(y) - 1 <= across.high
