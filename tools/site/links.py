"""A check that every link between pages of a built site leads to a file and an anchor of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The anchors of a page and the addresses that it names."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what names a place, and what leads to one."""
        for name, value in attrs:
            if value and (name == "id" or (tag == "a" and name == "name")):
                self.anchors.add(value)
            elif value and name in ("href", "src") and tag != "link":
                self.addresses.append(value)


def broken_links(html: Path) -> list[str]:
    """The links of a folder of pages that lead nowhere, as lines to read."""
    return [
        f"{path.relative_to(html)}: {address} leads nowhere"
        for path in sorted(html.rglob("*.html"))
        for address in _local(_page(path).addresses)
        if not _exists(path, address)
    ]


def _local(addresses: list[str]) -> Iterator[str]:
    for address in dict.fromkeys(addresses):
        parts = urlsplit(address)
        if not parts.scheme and not parts.netloc:
            yield address


def _exists(page: Path, address: str) -> bool:
    parts = urlsplit(address)
    path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not path.is_file():
        return False
    fragment = unquote(parts.fragment)
    return not fragment or path.suffix != ".html" or fragment in _page(path).anchors


@cache
def _page(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))
