"""The live page over many runs, and its server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sharpwave.pages.markup import Html, join, tag
from sharpwave.pages.page import DRAWING, masthead, page, section
from sharpwave.pages.serving import Answer, PageServer, json_answer
from sharpwave.pages.watch.runs import WatchedRuns

__all__ = ["watch_server"]

_HERE = Path(__file__).parent


def watch_server(runs: WatchedRuns, port: int = 0) -> PageServer:
    """A server of the page: `/`, `/runs` and `/curve?run=NAME&metric=NAME`, for its token.

    Args:
        runs: The runs.
        port: Port to listen on; 0 takes a free one.

    Raises:
        OSError: The port is taken.
        ValueError: There is no such port.
    """

    def whole(_: Mapping[str, str]) -> Answer:
        return "text/html", _page(runs).encode()

    def listed(_: Mapping[str, str]) -> Answer:
        return json_answer(runs.listed())

    def curve(arguments: Mapping[str, str]) -> Answer:
        return json_answer(runs.curve(arguments.get("run", ""), arguments.get("metric", "")))

    return PageServer({"/": whole, "/runs": listed, "/curve": curve}, port, with_token=True)


def _page(runs: WatchedRuns) -> str:
    name = runs.root.resolve().name
    header = masthead("runs, live", join(name), [tag("span", id="facts")])
    return page(
        f"{name} · sharpwave",
        header,
        _sections(),
        {"runs": runs.listed()},
        scripts=[DRAWING, _HERE / "watch.js"],
        styles=[_HERE / "style.css"],
        live=True,
        footer="Served by sharpwave on this machine only.",
    )


def _sections() -> list[Html]:
    """Empty places; the script fills them, and again with every news."""
    without = tag("noscript", tag("p", "This page needs its script, which is part of it."))
    curves = section("Curves", tag("div", id="controls"), tag("div", id="curves"))
    listed = section("Runs", tag("div", id="runs"))
    options = section("Options that differ", tag("div", id="options"))
    return [without, curves, listed, options]
