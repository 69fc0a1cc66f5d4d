"""A report as data: its tiles, charts and tables, with numbers read back from their text."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

VOID = {"meta", "link", "br", "img"}


def value_of(text: str) -> float:
    """The number that a text of a page stands for."""
    plain = text.replace("\N{MINUS SIGN}", "-").replace(",", "").removeprefix("± ")
    return float(plain.removesuffix(" %")) / (100 if plain.endswith(" %") else 1)


class ReportPage(HTMLParser):
    """The content of a page.

    Attributes:
        tiles: Value and detail of each tile by its label.
        captions: Number beside the title of each small chart, by title.
        hints: What stands below each title of a chart.
        labels: What a screen reader says of each chart, by title.
        tables: Rows of cells of each table, the head first.
        charts: What the script knows of each chart.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text = ""
        self.tiles: dict[str, tuple[str, str]] = {}
        self.captions: dict[str, str] = {}
        self.hints: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        self.tables: list[list[list[str]]] = []
        self.charts: list[dict[str, Any]] = []
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self._words: list[str] = []
        self._tile: dict[str, str] = {}
        self._title = ""
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag not in VOID:
            self._open.append((tag, attributes))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        elif tag == "figure":
            label = attributes.get("aria-label") or ""
            self.labels[label.partition(":")[0]] = label

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.text += data
        tag, attributes = self._open[-1] if self._open else ("", {})
        kinds = (attributes.get("class") or "").split()
        if attributes.get("id") == "data":
            self.charts = json.loads(data)["charts"]
        inside = [name for name, _ in self._open]
        if "table" in inside and ("td" in inside or "th" in inside):
            self.tables[-1][-1][-1] += data
        elif any("tile" in (a.get("class") or "").split() for _, a in self._open):
            if tag == "dt":
                self._title = data
                self.tiles[data] = ("", "")
            value, detail = self.tiles[self._title]
            self.tiles[self._title] = (
                value + data if tag == "b" else value,
                detail + data if tag == "span" else detail,
            )
        elif "title" in kinds:
            self._title = data
        elif "now" in kinds:
            self.captions[self._title] = data
        elif "hint" in kinds:
            self.hints[self._title] = data

    def table(self, first: str) -> list[dict[str, str]]:
        """The rows of the table whose first column has this name."""
        head, *rows = next(t for t in self.tables if t[0][0] == first)
        return [dict(zip(head, row, strict=True)) for row in rows]
