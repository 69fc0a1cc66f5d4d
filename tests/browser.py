"""Pages as a person meets them: opened in a browser, looked at, pointed at."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@dataclass
class Visit:
    """An open page and everything that it did."""

    page: Any
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, where: Path | str) -> Any:
        """Opens a file or an address, and returns the page."""
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", self._dismiss)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(where.as_uri() if isinstance(where, Path) else where)
        return self.page

    def _dismiss(self, dialog: Any) -> None:
        self.problems.append("dialog")
        dialog.dismiss()


def wait_until(page: Any, happens: Callable[[], bool], seconds: float = 20.0) -> None:
    """Waits for something to happen in a page, whose policy forbids the browser's own waiting."""
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, "it did not happen"
        page.wait_for_timeout(10)


def launched() -> Iterator[Any]:
    """A headless browser, closed at the end; the test is skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    browser = next(filter(None, map(shutil.which, NAMES)), None)
    if browser is None:
        pytest.skip("needs chromium or chrome")
    with playwright.sync_playwright() as tool:
        opened = tool.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        yield opened
        opened.close()
