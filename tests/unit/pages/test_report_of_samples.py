"""Reports of runs that write: what was written, and words that fit rewards."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sharpwave.pages.headline import RETURN, Headline
from sharpwave.pages.report import write_comparison, write_report
from sharpwave.pages.report.samples import LONGEST, MOST_UPDATES, samples_section
from sharpwave.pages.report.told import curve_of, headline_of, title_of
from sharpwave.runs.callbacks import ProgressCallback
from sharpwave.runs.recorder import RunRecorder
from tests.browser import Visit
from tests.unit.pages.report_pages import ReportPage
from tests.unit.runs.runs import evaluations, write_lines, write_run
from tests.unit.runs.writing import HOSTILE, Write, WritingLoop, row

REWARD = {
    "metric": "mean_reward",
    "title": "Reward",
    "hint": "mean of the last 20 updates",
    "each": "completion",
}
TOLD: dict[str, Any] = {
    "algorithm": "grpo",
    "env": None,
    "subject": "64 prompts",
    "unit": "updates",
    "headline": REWARD,
}


def wrote(path: Path, n_updates: int = 5, completion: Any = "4", **config: Any) -> Path:
    """The folder of a run that wrote something in every update."""
    write_run(path, n_updates, config.pop("n_evaluations", 0), **(TOLD | config))
    metrics = path / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"mean_return"', '"mean_reward"'))
    kept = [
        {"step": step, "rank": rank, **row(reward, completion)}
        for step in range(1, n_updates + 1)
        for rank, reward in (("best", step / 10), ("median", 0.05), ("worst", 0.0))
    ]
    write_lines(path / "samples.jsonl", kept)
    return path


def embedded(page: str) -> Any:
    """The data of the script of a page."""
    data = page.partition('id="data">')[2].partition("</script>")[0]
    return json.loads(data)["samples"]


def test_a_report_holds_what_was_written(tmp_path: Path) -> None:
    page = write_report(wrote(tmp_path / "run")).read_text()
    assert "What it wrote" in page
    samples = embedded(page)
    assert samples["unit"] == "update"
    assert [one["step"] for one in samples["updates"]] == [1, 2, 3, 4, 5]
    assert [one["rank"] for one in samples["updates"][0]["rows"]] == ["best", "median", "worst"]
    assert samples["updates"][4]["rows"][0]["reward"] == 0.5


def test_a_run_that_wrote_nothing_has_no_such_section(tmp_path: Path) -> None:
    page = write_report(write_run(tmp_path / "run")).read_text()
    assert "What it wrote" not in page
    assert "samples" not in page.partition('id="data">')[2]


def test_texts_never_become_markup(tmp_path: Path) -> None:
    page = write_report(wrote(tmp_path / "run", completion=HOSTILE)).read_text()
    assert "<script>alert" not in page
    assert embedded(page)["updates"][0]["rows"][0]["completion"] == [HOSTILE, 0]


@pytest.mark.parametrize(
    "forged",
    [
        {"step": 1, "rank": "best"},
        {"step": 1, "rank": "best", "prompt": {"a": 1}, "completion": 7, "rewards": [1]},
        {"step": 1, "rank": "best", "reward": "x", "length": [], "finished": "<b>"},
        {"step": 1, "rank": "best", "rewards": {"<i>": {}}, "advantage": 10**400},
    ],
)
def test_whatever_a_file_says_becomes_plain_values(tmp_path: Path, forged: dict[str, Any]) -> None:
    path = wrote(tmp_path / "run")
    write_lines(path / "samples.jsonl", [forged])
    ((one,),) = (update["rows"] for update in embedded(write_report(path).read_text())["updates"])
    assert one["reward"] is None
    assert one["finished"] is None
    assert one["advantage"] is None
    assert isinstance(one["rewards"], list)


def test_long_runs_and_long_texts_are_thinned() -> None:
    one = {"best": row(1.0, "x" * (LONGEST + 7))}
    _, data = samples_section(dict.fromkeys(range(1, 1001), one), "updates")
    steps = [update["step"] for update in data["samples"]["updates"]]
    assert len(steps) == MOST_UPDATES
    assert (steps[0], steps[-1]) == (1, 1000)
    gaps = {b - a for a, b in pairwise(steps)}
    assert gaps <= {5, 6}
    text, more = data["samples"]["updates"][0]["rows"][0]["completion"]
    assert (len(text), more) == (LONGEST, 7)
    assert samples_section({1: {"odd": {}}}, "updates") == (None, {})


# Words


def test_a_report_speaks_of_rewards_and_completions(tmp_path: Path) -> None:
    path = wrote(tmp_path / "run", n_evaluations=3)
    write_lines(path / "metrics.jsonl", [{"step": i, "mean_reward": i / 8} for i in range(1, 6)])
    write_lines(path / "evaluations.jsonl", [one | {"step": 2} for one in evaluations(1)])
    page = ReportPage(write_report(path))
    assert page.tiles["Reward"][1] == "best 0.625 at step 5"
    assert page.tiles["Final evaluation"][1].endswith("over 5 completions")
    assert page.hints["Reward"].startswith("mean of the last 20 updates; evaluation: mean")
    assert page.tables[1][0][-1] == "Every completion"
    shown = page.text.partition("Configuration")[0]
    assert "eturn" not in shown
    assert "pisode" not in shown


def test_metrics_of_language_models_are_explained(tmp_path: Path) -> None:
    path = wrote(tmp_path / "run")
    names = {
        "reward": "Reward of an update",
        "reward_std": "Spread of rewards",
        "kl": "KL divergence",
        "completion_length": "Completion length",
        "cut_fraction": "Cut completions",
        "clip_fraction_low": "Clip fraction, low",
        "clip_fraction_high": "Clip fraction, high",
        "groups_without_spread": "Groups without spread",
        "unscored_fraction": "Unscored",
    }
    write_lines(path / "metrics.jsonl", [{"step": i, **dict.fromkeys(names, 0.5)} for i in (1, 2)])
    page = ReportPage(write_report(path))
    assert set(names.values()) <= set(page.captions)
    assert all(page.hints[title] for title in names.values())


@pytest.mark.long
def test_a_comparison_speaks_of_rewards(tmp_path: Path) -> None:
    paths = [wrote(tmp_path / str(seed), n_evaluations=2, seed=seed) for seed in range(2)]
    page = ReportPage(write_comparison(paths, tmp_path / "comparison.html"))
    assert "training reward over seeds" in page.hints["Reward"]
    assert "mean reward of the last evaluation" in page.text
    assert "eturn" not in page.text.partition("{")[0]


def test_headlines_keep_their_words_in_files(tmp_path: Path) -> None:
    Write().train(1, callbacks=RunRecorder(tmp_path / "run", report=False))
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert headline_of(config) == WritingLoop.headline
    assert (title_of(RETURN), curve_of(RETURN)) == ("Episode return", "training return")
    loss = Headline("policy_loss", lower_is_better=True)
    assert (title_of(loss), curve_of(loss)) == ("Policy loss", "policy loss")
    forged = {"headline": {"metric": "x", "title": 3, "each": "", "hint": []}}
    assert headline_of(forged) == Headline("x")


def test_the_progress_bar_says_reward(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    Write().train(2, callbacks=ProgressCallback(force=True))
    assert "2/2 updates  reward 0.25" in capsys.readouterr().out


# In a browser


@pytest.mark.long
def test_a_slider_walks_through_the_updates(tmp_path: Path, visit: Visit) -> None:
    page = visit.open(write_report(wrote(tmp_path / "run", n_updates=9)))
    card = page.locator("#samples")
    assert "update 9" in card.inner_text()
    assert "reward 0.9" in card.inner_text()
    assert card.locator("article").count() == 3
    slider = card.locator("input")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    assert "update 8" in card.inner_text()
    card.get_by_title("Earlier").click()
    assert "update 7" in card.inner_text()
    page.keyboard.press("Home")
    slider.focus()
    page.keyboard.press("Home")
    assert "update 1" in card.inner_text()
    assert card.get_by_title("Earlier").is_disabled()
    assert visit.problems == []
    assert [url for url in visit.requests if url.startswith("http")] == []


@pytest.mark.long
@pytest.mark.parametrize("width", [380, 1300])
def test_hostile_and_long_texts_are_shown_and_folded(
    tmp_path: Path, visit: Visit, width: int
) -> None:
    path = wrote(tmp_path / "run", completion=HOSTILE + "\n" + "word " * 2000)
    page = visit.open(write_report(path))
    page.set_viewport_size({"width": width, "height": 800})
    text = page.locator("#samples article").first.locator(".text.completion")
    assert "<script>alert(1)</script>↵" in text.inner_text()
    assert "\\u0000\\u001b[31m\\u009b\\u2028\\u202e" in text.inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    folded = text.bounding_box()["height"]
    assert folded < 260
    text.get_by_text("Show all").click()
    assert text.bounding_box()["height"] > 2 * folded
    assert "more characters are in samples.jsonl" in text.inner_text()
    assert visit.problems == []


@pytest.mark.long
def test_updates_whose_rewards_are_the_same_say_so(tmp_path: Path, visit: Visit) -> None:
    path = wrote(tmp_path / "run")
    kept = [{"step": 1, "rank": rank, **row(0.0, "")} for rank in ("best", "median", "worst")]
    write_lines(path / "samples.jsonl", [*kept, {"step": 2, "rank": "unscored", **row(None)}])
    page = visit.open(write_report(path))
    card = page.locator("#samples")
    assert "no reward" in card.inner_text()
    card.get_by_title("Earlier").click()
    assert "update 1: all rewards are 0" in card.inner_text()
    assert "nothing" in card.inner_text()
    assert visit.problems == []
