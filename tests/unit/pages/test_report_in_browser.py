"""The report as a person meets it: opened in a browser, looked at, pointed at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sharpwave.pages.report import write_comparison, write_report
from sharpwave.runs.recorder import RunRecorder
from tests.browser import Visit
from tests.contract.fitting import Fit
from tests.unit.runs.runs import rows, write_lines, write_run

pytestmark = pytest.mark.long


def assert_curves_are_visible(page: Any) -> None:
    areas = page.locator("figure[data-chart] .area")
    assert areas.count() > 0
    for i in range(areas.count()):
        curve = areas.nth(i).locator("path.curve").last
        area, box = areas.nth(i).bounding_box(), curve.bounding_box()
        assert area["width"] > 100
        assert area["height"] > 50
        assert box["width"] > 50
        assert box["height"] >= 1
        stroke = curve.evaluate("path => getComputedStyle(path).stroke")
        assert stroke not in ("none", "rgba(0, 0, 0, 0)")


def test_report_opens_without_errors_or_requests(tmp_path: Path, visit: Visit) -> None:
    path = write_report(write_run(tmp_path / "run"))
    page = visit.open(path)
    assert page.title() == "PPO on CartPole-v1"
    assert_curves_are_visible(page)
    assert visit.problems == []
    assert [url for url in visit.requests if not url.startswith("data:")] == [path.as_uri()]


def test_a_run_without_environments_opens_as_well(tmp_path: Path, visit: Visit) -> None:
    Fit().train(30, callbacks=RunRecorder(tmp_path / "run", report=False))
    page = visit.open(write_report(tmp_path / "run"))
    assert page.title() == "FIT on 64 points of a plane"
    assert_curves_are_visible(page)
    page.locator("figure[data-chart] .area").first.hover()
    tip = page.locator("#tip").inner_text()
    assert "update" in tip
    assert "mean squared error" in tip
    assert visit.problems == []


def test_pointing_at_a_curve_shows_its_numbers_in_all_charts(tmp_path: Path, visit: Visit) -> None:
    page = visit.open(write_report(write_run(tmp_path / "run")))
    tip = page.locator("#tip")
    assert not tip.is_visible()
    page.locator("figure[data-chart] .area").first.hover()
    assert tip.is_visible()
    assert "training return" in tip.inner_text()
    assert "±" in tip.inner_text()
    assert tip.bounding_box()["width"] > 50
    crosses = page.locator(".cross")
    assert crosses.count() > 5
    assert all(crosses.nth(i).is_visible() for i in range(crosses.count()))
    page.locator("h1").hover()
    assert not tip.is_visible()
    assert not crosses.first.is_visible()
    assert visit.problems == []


def test_arrow_keys_walk_along_a_curve(tmp_path: Path, visit: Visit) -> None:
    page = visit.open(write_report(write_run(tmp_path / "run")))
    page.locator("figure[data-chart]").first.focus()
    page.keyboard.press("ArrowLeft")
    assert "step 25,600" in page.locator("#tip").inner_text()
    page.keyboard.press("ArrowLeft")
    assert "step 25,344" in page.locator("#tip").inner_text()


def test_theme_follows_the_system_and_the_button(tmp_path: Path, visit: Visit) -> None:
    page = visit.open(write_report(write_run(tmp_path / "run")))

    def background() -> Any:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    light = background()
    page.locator("#theme").click()
    dark = background()
    assert dark != light
    page.locator("#theme").click()
    assert background() == light
    page.evaluate("delete document.documentElement.dataset.theme")
    page.emulate_media(color_scheme="dark")
    assert background() == dark


@pytest.mark.parametrize("width", [380, 820, 1600])
def test_page_fits_every_window(tmp_path: Path, visit: Visit, width: int) -> None:
    page = visit.open(write_report(write_run(tmp_path / "run")))
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert_curves_are_visible(page)


def test_text_of_the_run_does_not_run(tmp_path: Path, visit: Visit) -> None:
    hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    path = write_run(tmp_path / "run", env=hostile, algorithm=hostile)
    write_lines(path / "metrics.jsonl", [row | {hostile: 1.0} for row in rows(5)])
    (path / "environment.json").write_text(json.dumps({"cpu": hostile, "argv": [hostile]}))
    page = visit.open(write_report(path))
    page.locator("figure[data-chart] .area").last.hover()
    assert page.locator("#tip").is_visible()
    assert page.locator("img").count() == 0
    assert visit.problems == []
    assert hostile in page.locator("h1").inner_text()


def test_injected_script_is_stopped_by_the_policy(tmp_path: Path, visit: Visit) -> None:
    path = write_report(write_run(tmp_path / "run"))
    path.write_text(path.read_text().replace("<main>", "<main><script>alert(1)</script>"))
    visit.open(path)
    assert "dialog" not in visit.problems
    assert any("Content Security Policy" in problem for problem in visit.problems)


def test_run_of_one_row_shows_points(tmp_path: Path, visit: Visit) -> None:
    page = visit.open(write_report(write_run(tmp_path / "run", n_updates=1, n_evaluations=1)))
    page.locator("figure[data-chart] .area").first.hover()
    assert "step" in page.locator("#tip").inner_text()
    assert visit.problems == []


def test_comparison_opens_and_answers(tmp_path: Path, visit: Visit) -> None:
    paths = [
        write_run(tmp_path / f"{name}{seed}", algorithm=name, seed=seed)
        for name in ("ppo", "a2c")
        for seed in range(3)
    ]
    page = visit.open(write_comparison(paths, tmp_path / "comparison.html"))
    assert_curves_are_visible(page)
    page.locator("figure[data-chart] .area").first.hover()
    assert "PPO" in page.locator("#tip").inner_text()
    assert "A2C" in page.locator("#tip").inner_text()
    assert visit.problems == []
    assert [url for url in visit.requests if url.startswith("http")] == []


@pytest.mark.parametrize("width", [380, 1300])
@pytest.mark.parametrize("shift", [-1_333.2, -1e15])
def test_headlines_stay_inside_their_tiles(
    tmp_path: Path, visit: Visit, width: int, shift: float
) -> None:
    """A headline of -1,133.2 ran over the edge of its tile."""
    paths = []
    for algorithm in ("ppo", "a2c", "discrete_sac"):
        path = write_run(tmp_path / algorithm, algorithm=algorithm)
        lines = [json.loads(line) for line in (path / "evaluations.jsonl").read_text().splitlines()]
        write_lines(
            path / "evaluations.jsonl", [one | {"mean": one["mean"] + shift} for one in lines]
        )
        summary = {"status": "finished", "timesteps": 2_500_000_123, "wall_seconds": 4e5}
        (path / "summary.json").write_text(json.dumps(summary))
        paths.append(path)
    for written in (write_report(paths[0]), write_comparison(paths, tmp_path / "comparison.html")):
        page = visit.open(written)
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        tiles = page.locator(".tile")
        for i in range(tiles.count()):
            outside = tiles.nth(i).evaluate(
                "tile => [...tile.querySelectorAll('b, span, dt')].some(part => {"
                "  const range = document.createRange(); range.selectNodeContents(part);"
                "  return range.getBoundingClientRect().right > tile.getBoundingClientRect().right;"
                "})"
            )
            assert not outside, tiles.nth(i).inner_text()


def test_the_pointer_finds_what_was_logged(tmp_path: Path, visit: Visit) -> None:
    """Over a smoothed curve the pointer showed the average as the metric's value."""
    path = write_run(tmp_path / "run")
    write_lines(
        path / "metrics.jsonl",
        [{"step": i, "mean_return": 0.0, "loss": float(i % 2)} for i in range(1, 201)],
    )
    page = visit.open(write_report(path))
    chart = page.locator("figure[data-chart]").nth(1)
    chart.focus()
    page.keyboard.press("ArrowLeft")
    assert "step 200" in page.locator("#tip").inner_text()
    assert chart.locator(".now").inner_text() == "0"
    page.keyboard.press("ArrowLeft")
    assert chart.locator(".now").inner_text() == "1"
    assert "moving average" in page.locator("#tip").inner_text()
    assert visit.problems == []


def test_names_and_headings_stay_whole_in_a_narrow_window(tmp_path: Path, visit: Visit) -> None:
    """In a narrow window the name of an algorithm was broken within its letters."""
    paths = [write_run(tmp_path / f"ppo{seed}", seed=seed) for seed in range(2)]
    page = visit.open(write_comparison(paths, tmp_path / "comparison.html"))
    page.set_viewport_size({"width": 380, "height": 800})
    assert page.locator(".finals .key").bounding_box()["height"] < 30
    for heading in page.locator("h2").all():
        words = heading.evaluate(
            "h => { const range = document.createRange(); range.selectNode(h.firstChild);"
            " return range.getClientRects().length; }"
        )
        assert words == 1, heading.inner_text()
