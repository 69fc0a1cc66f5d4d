"""The page: one file that shows a folder, or asks a server for news of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sharpwave.pages.markup import Html, join, tag
from sharpwave.pages.page import DRAWING, masthead, page, section
from sharpwave.pages.viewer.sample import Sample

_HERE = Path(__file__).parent
SCRIPTS = [DRAWING, *(_HERE / name for name in ("source.js", "player.js", "table.js", "app.js"))]


def viewer_page(state: dict[str, Any], sample: Sample | None) -> str:
    """The page as HTML.

    Args:
        state: The summary and the table of episodes.
        sample: The episodes that the page carries; None for one that asks a server.
    """
    name = state["summary"]["name"]
    live = sample is None
    kicker = "experience, live" if live else "experience on disk"
    carried = {} if sample is None else {str(k): v for k, v in sample.episodes.items()}
    reasons = {} if sample is None else {str(k): v for k, v in sample.reasons.items()}
    data = {
        "live": live,
        "state": state,
        "episodes": carried,
        "reasons": reasons,
        "order": [] if sample is None else list(sample.episodes),
    }
    return page(
        f"{name} · sharpwave",
        masthead(kicker, join(name), [tag("span", id="facts")]),
        _sections(),
        data,
        scripts=SCRIPTS,
        styles=[_HERE / "style.css"],
        live=live,
        footer="Served by sharpwave on this machine only."
        if live
        else "Written by sharpwave. This file is complete in itself.",
    )


def _sections() -> list[Html]:
    """Empty places; the script fills them, and again with every news."""
    without = tag("noscript", tag("p", "This page needs its script, which is part of it."))
    damage = tag("div", id="damage", class_="callout", role="alert", hidden=True)
    notes = tag("div", id="notes", class_="callout soft", hidden=True)
    tiles = tag("dl", id="tiles", class_="tiles")
    spreads = section("Returns and lengths", tag("div", id="spreads", class_="spreads"))
    player = section("Inside", tag("div", id="player", class_="player"))
    episodes = section("Episodes", tag("div", id="episodes"))
    fields = section("Fields", tag("div", id="fields", class_="scroll whole", tabindex=0))
    folder = section("Folder", tag("dl", id="folder", class_="pairs"))
    return [without, damage, tiles, notes, spreads, player, episodes, fields, folder]
