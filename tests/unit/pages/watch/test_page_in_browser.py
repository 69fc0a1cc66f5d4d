"""The live page of runs as a person meets it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sharpwave.pages.serving import PageServer
from tests.browser import Visit, wait_until
from tests.unit.pages.watch.folders import append, served, write_run

pytestmark = pytest.mark.long


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PageServer]:
    write_run(tmp_path / "one", [1.0, 5.0, 9.0], seed=0, learning_rate=0.001)
    write_run(tmp_path / "two", [2.0, 4.0, 6.0], seed=1, learning_rate=0.001)
    write_run(tmp_path / "<i>dqn", [3.0, 0.5], algorithm="dqn", learning_rate=0.1, gamma=0.9)
    with served(tmp_path) as made:
        yield made


def lines(page: Any) -> dict[str, str]:
    """Colors of the curves by run."""
    found: dict[str, str] = page.eval_on_selector_all(
        "#curves .curve",
        "paths => Object.fromEntries(paths.map((one) => [one.dataset.run, one.classList[1]]))",
    )
    return found


def visible(page: Any, names: set[str]) -> None:
    wait_until(page, lambda: set(lines(page)) == names)


def texts(page: Any, selector: str) -> list[str]:
    found: list[str] = page.locator(selector).all_inner_texts()
    return found


def test_curves_filters_and_differences(visit: Visit, server: PageServer, tmp_path: Path) -> None:
    page = visit.open(server.url)
    visible(page, {"one", "two", "<i>dqn"})
    colors = lines(page)
    assert colors["one"] == colors["two"] != colors["<i>dqn"]  # seeds have one color
    assert "token" not in page.url
    assert page.locator("#runs i").count() == 0
    assert "gamma" in texts(page, "#options code")

    page.fill("#filter", "learning_rate<0.01")
    visible(page, {"one", "two"})
    assert texts(page, "#options code") == ["seed"]
    page.fill("#filter", "algorithm=dqn")
    visible(page, {"<i>dqn"})
    page.fill("#filter", "")
    page.uncheck('input[data-run="two"]')
    visible(page, {"one", "<i>dqn"})

    page.select_option("#metric", "loss")
    wait_until(page, lambda: texts(page, "#curves .title") == ["loss"])
    page.select_option("#across", "seconds")
    wait_until(page, lambda: texts(page, "#curves .hint") == ["over seconds"])
    page.check("#logY")
    wait_until(page, lambda: "NaN" not in page.inner_html("#curves"))
    visible(page, {"one", "<i>dqn"})
    assert visit.problems == []
    assert all(url.startswith("http://127.0.0.1") for url in visit.requests if "data:" not in url)


def test_news_come_by_themselves(visit: Visit, server: PageServer, tmp_path: Path) -> None:
    page = visit.open(server.url)
    visible(page, {"one", "two", "<i>dqn"})
    append(tmp_path / "one", [77.0])
    write_run(tmp_path / "three", [4.0, 4.5])
    visible(page, {"one", "two", "three", "<i>dqn"})
    wait_until(page, lambda: any("77" in text for text in texts(page, "#runs td")))
    assert visit.problems == []


def test_an_empty_folder_says_so(visit: Visit, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    with served(tmp_path / "none") as server:
        page = visit.open(server.url)
        wait_until(page, lambda: "There are no runs here yet." in page.inner_text("#curves"))
        write_run(tmp_path / "none" / "first", [1.0, 2.0])
        visible(page, {"first"})
    assert visit.problems == []
