"""The viewer as a person meets it: opened in a browser, played, filtered, watched."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from sharpwave.episodes import EpisodeBuffer
from sharpwave.pages.viewer import Viewer
from sharpwave.pages.viewer.terminal import print_summary
from tests.browser import Visit, wait_until
from tests.unit.pages.viewer.folders import add_episode, new_buffer, served, write_folder

LENGTHS = (9, 5, 12, 7, 8, 20, 3, 4, 6, 5)

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("viewer")
    with Viewer(write_folder(folder / "robots", LENGTHS)) as viewer:
        viewer.write_page(folder / "page.html", episodes=6)
    return folder / "page.html"


def pixels(page: Any) -> list[int]:
    """The content of the first canvas; nothing before it shows something."""
    shown: list[int] = page.evaluate(
        """() => {
            const shown = document.querySelector("canvas");
            if (!shown || shown.width === 1) return [];
            const copy = new OffscreenCanvas(shown.width, shown.height);
            const context = copy.getContext("2d");
            context.drawImage(shown, 0, 0);
            return [...context.getImageData(0, 0, copy.width, copy.height).data];
        }"""
    )
    return shown


def first_picture(page: Any) -> list[int]:
    """The content of the canvas as soon as there is some."""
    wait_until(page, lambda: bool(pixels(page)))
    return pixels(page)


def step(page: Any) -> str:
    return str(page.locator(".counter b").inner_text())


def row_ids(page: Any) -> list[str]:
    ids: list[str] = page.eval_on_selector_all(
        "#episodes tbody tr", "rows => rows.map((row) => row.dataset.id)"
    )
    return ids


def test_page_opens_without_errors_or_requests(page_file: Path, visit: Visit) -> None:
    page = visit.open(page_file)
    assert page.title() == "robots · sharpwave"
    assert page.locator("h1").inner_text() == "robots"
    assert len(first_picture(page)) == 12 * 16 * 4
    assert visit.problems == []
    assert [url for url in visit.requests if not url.startswith("data:")] == [page_file.as_uri()]


def test_histograms_fields_and_curves_are_drawn(page_file: Path, visit: Visit) -> None:
    page = visit.open(page_file)
    histograms = page.locator(".histogram")
    assert histograms.count() == 2
    for i in range(2):
        bars = histograms.nth(i).locator(".bin")
        heights = [bars.nth(k).bounding_box()["height"] for k in range(bars.count())]
        assert max(heights) > 100
    assert page.locator(".timeline path.points").count() == 1
    assert page.locator("#fields tbody tr").count() == 7
    curves = page.locator(".curve-of path.curve")
    assert curves.count() == 3
    for i in range(curves.count()):
        assert curves.nth(i).bounding_box()["width"] > 50
    heat = page.locator(".heat img")
    assert heat.evaluate("image => image.naturalWidth") == 20


def test_scrubber_keys_and_buttons_move_the_picture(page_file: Path, visit: Visit) -> None:
    page = visit.open(page_file)
    first = first_picture(page)
    assert step(page) == "0"
    page.keyboard.press("ArrowRight")
    assert step(page) == "1"
    wait_until(page, lambda: pixels(page) != first)
    page.keyboard.press("Shift+ArrowRight")
    assert step(page) == "11"
    page.keyboard.press("End")
    assert step(page) == "19"
    page.keyboard.press("Home")
    assert step(page) == "0"
    wait_until(page, lambda: pixels(page) == first)
    slider = page.locator(".controls input[type=range]")
    slider.fill("5")
    assert step(page) == "5"
    cross = page.locator(".curve-of .cross").first
    left = cross.evaluate("line => parseFloat(line.style.left)")
    assert left == pytest.approx(100 * 5 / 19)
    page.get_by_label("Step forward").click()
    assert step(page) == "6"
    assert visit.problems == []


def test_playing_runs_to_the_end_and_stops(page_file: Path, visit: Visit) -> None:
    page = visit.open(page_file)
    page.locator(".controls select").select_option("60")
    page.get_by_label("Play").click()
    wait_until(page, lambda: step(page) == "19")
    page.get_by_label("Play", exact=True).wait_for()
    assert visit.problems == []


def test_pointing_at_a_curve_moves_the_scrubber(page_file: Path, visit: Visit) -> None:
    page = visit.open(page_file)
    area = page.locator(".curve-of .area").first
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    page.mouse.click(box["x"] + box["width"] * 10 / 19, box["y"] + box["height"] / 2)
    assert step(page) == "10"
    assert page.locator(".curve-of", has_text="obs.speed").locator(".now").inner_text() == "10"


def test_table_sorts_filters_and_opens(page_file: Path, visit: Visit) -> None:
    page = visit.open(page_file)
    assert row_ids(page) == [str(i) for i in reversed(range(10))]
    page.locator("#episodes th button", has_text="length").click()
    assert row_ids(page)[:2] == ["5", "2"]
    assert (
        page.locator("#episodes th", has_text="length").get_attribute("aria-sort") == "descending"
    )
    filter_box = page.locator("#episodes input")
    filter_box.fill("success=true length>5")
    assert row_ids(page) == ["2", "0", "4", "8"]
    assert page.locator("#found").inner_text() == "4 of 10 episodes"
    filter_box.fill("task=0,1 length!=5,20")
    assert len(row_ids(page)) == 7
    filter_box.fill("speed>1")
    assert "there is no column speed" in page.locator("#found").inner_text()
    assert filter_box.get_attribute("aria-invalid") == "true"
    filter_box.fill("")
    page.locator("#episodes tbody button").last.click()
    opened = page.locator("tr.here").get_attribute("data-id")
    assert page.locator(".heading h3").inner_text() == f"Episode {opened}"
    assert visit.problems == []


def test_a_bar_of_a_histogram_lists_its_episodes(page_file: Path, visit: Visit) -> None:
    page = visit.open(page_file)
    figure = page.locator(".histogram").nth(1)
    figure.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#tip").is_visible()
    page.keyboard.press("Enter")
    assert page.locator("#episodes input").input_value() == "length>=3 length<4"
    assert row_ids(page) == ["6"]


def test_what_is_not_in_the_file_is_said_and_cannot_be_opened(
    page_file: Path, visit: Visit
) -> None:
    page = visit.open(page_file)
    assert "6 of 10 episodes are in this file" in page.locator("h2", has_text="Inside").inner_text()
    assert page.locator("#episodes tbody button").count() == 6
    assert page.locator("#episodes tr.closed").count() == 4
    assert page.locator("#episodes .badge", has_text="best return").count() == 1


@pytest.mark.parametrize("width", [380, 820, 1600])
def test_page_fits_every_window(page_file: Path, visit: Visit, width: int) -> None:
    page = visit.open(page_file)
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_theme_follows_the_system(page_file: Path, visit: Visit) -> None:
    page = visit.open(page_file)
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(background) != light


def test_names_from_the_folder_stay_text(tmp_path: Path, visit: Visit) -> None:
    name = "<img src=x onerror=alert(1)>"
    with EpisodeBuffer(tmp_path / name, 2, 9, {name: "float"}, {name + "!": "int"}) as buffer:
        buffer.store_episode(**{name: np.arange(5), name + "!": 1})
    with Viewer(tmp_path / name) as viewer:
        viewer.write_page(tmp_path / "page.html")
    page = visit.open(tmp_path / "page.html")
    assert page.locator("h1").inner_text() == name
    assert page.locator("#fields code").first.inner_text() == name
    assert page.locator("img").count() == 0
    assert visit.problems == []


def test_episodes_appear_while_a_writer_appends(tmp_path: Path, visit: Visit) -> None:
    buffer = new_buffer(tmp_path / "data")
    with served(tmp_path / "data") as server:
        page = visit.open(server.url)
        assert not page.locator("#episodes").is_visible()
        assert page.locator("#pulse").inner_text() == "live"
        add_episode(buffer, 0, 3)
        page.wait_for_selector('tr[data-id="0"]')
        first_picture(page)
        assert page.locator(".heading h3").inner_text() == "Episode 0"
        page.locator("#follow").check()
        add_episode(buffer, 1, 5)
        heading = page.locator(".heading h3")
        wait_until(page, lambda: heading.inner_text() == "Episode 1")
        assert row_ids(page) == ["1", "0"]
        first = first_picture(page)
        page.get_by_label("Step forward").click()
        assert step(page) == "1"
        wait_until(page, lambda: pixels(page) != first)
        assert visit.problems == []
        assert all(server.url in asked for asked in visit.requests if not asked.startswith("data:"))
    buffer.close()


def test_seeds_are_written_in_full(tmp_path: Path, visit: Visit) -> None:
    """A seed was written as 1.9767e9."""
    buffer = EpisodeBuffer(
        tmp_path / "data",
        max_episodes=4,
        max_timesteps=8,
        fields={"obs": ("float32", 2), "reward": "float32"},
        meta_fields={"seed": "int64", "rank": "int64"},
    )
    with buffer:
        for i in range(3):
            with buffer.one_episode(seed=1_976_712_340 + i, rank=-5_000_000_000):
                buffer.store(obs=np.zeros(2), reward=1.0)
    with Viewer(tmp_path / "data") as viewer:
        viewer.write_page(tmp_path / "page.html")
        said = io.StringIO()
        terminal = Console(width=200, file=said)
        print_summary(viewer.summary, terminal)
    page = visit.open(tmp_path / "page.html")
    shown = page.locator("main").inner_text()
    for seed in (1_976_712_340, 1_976_712_341, 1_976_712_342):
        assert f"{seed}" in shown
    assert "−5,000,000,000" in shown
    assert "e9" not in page.locator("#episodes").inner_text()
    assert "1,976,712,340" in said.getvalue()
    assert visit.problems == []
