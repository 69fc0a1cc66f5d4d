"""The page around the sections: one file with its style, its script and their numbers inside."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sharpwave.pages.markup import Html, join, tag

_HERE = Path(__file__).parent
CHARTS, SAMPLES, DRAWING = (_HERE / name for name in ("charts.js", "samples.js", "draw.js"))
"""Scripts of parts of a page."""

_WAVE = "M2 16h6l2-4 3 8 3-16 4 24 3-16 2 8 2-4h3"
_MARK = Html(f'<svg class="mark" viewBox="0 0 32 32" aria-hidden="true"><path d="{_WAVE}"/></svg>')
_ICON = (
    "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'><path d='"
    f"{_WAVE}' fill='none' stroke='#2f6fdf' stroke-width='2.5' stroke-linejoin='round'/></svg>"
)


def page(
    title: str,
    header: Html,
    sections: list[Html],
    data: Any,
    *,
    scripts: Sequence[Path] = (CHARTS,),
    styles: Sequence[Path] = (),
    live: bool = False,
    footer: str = "Written by sharpwave. This file is complete in itself.",
) -> str:
    """A whole HTML document that needs nothing but itself.

    Its content policy lets only its own script run and nothing be fetched; a live page may ask the
    server that it came from.

    Args:
        title: Title of the window.
        header: Header of the page.
        sections: Sections of the page.
        data: Numbers for the script, in values that JSON can hold.
        scripts: Files of the script, after what every page needs.
        styles: Files of more style.
        live: The page asks its server for news.
        footer: The last line.
    """
    style = _joined(_HERE / "style.css", *styles)
    script = _joined(_HERE / "base.js", *scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; media-src data:"
    )
    if live:
        policy = policy.replace("img-src", "connect-src 'self'; img-src 'self'")
    icon = "data:image/svg+xml;base64," + base64.b64encode(_ICON.encode()).decode()
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("link", rel="icon", href=icon),
        tag("style", Html(style)),
    )
    # "<" as an escape, so that no text in the data can end the element.
    numbers = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    body = tag(
        "body",
        tag("main", header, *sections, tag("footer", footer)),
        tag("div", id="tip", role="status", hidden=True),
        tag("script", Html(numbers), type="application/json", id="data"),
        tag("script", Html(script)),
    )
    return join(Html("<!doctype html>\n"), tag("html", head, body, lang="en"), "\n")


def masthead(kicker: str, title: Html, facts: list[Html]) -> Html:
    """The top of a page: the mark, what it is, a title and a line of facts."""
    button = tag("button", "Theme", id="theme", type="button", title="Light or dark")
    return tag(
        "header",
        tag("div", _MARK, tag("span", kicker), button, class_="brand"),
        tag("h1", title),
        tag("p", *facts, class_="facts"),
    )


def section(title: str, *content: Any, note: str | None = None) -> Html:
    """A part of the page under a heading."""
    heading = tag("h2", title, tag("small", note) if note else None)
    return tag("section", heading, *content)


def tile(label: str, value: str, detail: str | None = None, *, color: int | None = None) -> Html:
    """One number that matters; those that matter most have a color."""
    return tag(
        "div",
        tag("dt", label),
        # A long number is written smaller, rather than over the edge of its tile.
        tag(
            "dd",
            tag("b", value, style=f"--characters:{len(value)}"),
            tag("span", detail) if detail else None,
        ),
        class_="tile" if color is None else f"tile main c{color}",
    )


def table(head: list[str], rows: list[list[Any]], *, class_: str = "numbers") -> Html:
    """A table that scrolls when it is too large."""
    return tag(
        "div",
        tag(
            "table",
            tag("thead", tag("tr", *(tag("th", name, scope="col") for name in head))),
            tag("tbody", *(tag("tr", *(tag("td", cell) for cell in row)) for row in rows)),
            class_=class_,
        ),
        class_="scroll",
        tabindex=0,
    )


def definitions(pairs: list[tuple[Any, Any]], *, class_: str = "pairs") -> Html:
    """Names and what they stand for, in columns."""
    items = (tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs)
    return tag("dl", *items, class_=class_)


def _joined(*paths: Path) -> str:
    return "\n\n".join(path.read_text(encoding="utf-8").strip() for path in paths)
