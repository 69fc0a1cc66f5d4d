"""A browser for the tests that look at pages."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser import Visit, launched


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless browser."""
    yield from launched()


@pytest.fixture
def visit(browser: Any) -> Iterator[Visit]:
    """An empty page."""
    page = browser.new_page(viewport={"width": 1200, "height": 900}, color_scheme="light")
    yield Visit(page)
    page.close()
