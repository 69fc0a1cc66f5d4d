"""The page: one file that shows the state of a folder, or asks a server for news of it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave.pages.markup import Html, join, tag
from sharpwave.pages.page import DRAWING, masthead, page, section
from sharpwave.pages.viewer.detail import as_texts
from sharpwave.pages.viewer.sample import Sample
from sharpwave.pages.viewer.source import OPEN, STATES
from sharpwave.pages.viewer.summary import FolderSummary
from sharpwave.pages.viewer.survey import Survey
from sharpwave.storage.files import to_json

MOST_LISTED = 20_000
"""Episodes in the table of the page, the newest."""

OWN_COLUMNS = ("episode", "return", "length", "state")
"""Columns of the table that are no meta fields."""


def state(
    survey: Survey, summary: FolderSummary, since: int = -1, keep: Collection[int] = ()
) -> dict[str, Any]:
    """The summary and the rows of the table.

    Args:
        survey: The folder's content as far as it was read.
        summary: Its numbers.
        since: Rows of episodes with smaller ids are left out: the page knows them.
        keep: Ids of episodes that are listed however old they are.

    Returns:
        version, summary; episodes: columns by name, of the episodes from `since` on; first: the
        smallest id that is listed; settled: ids below will not change any more.
    """
    episodes = survey.episodes
    listed = np.isin(episodes.ids, list(keep))
    listed[-MOST_LISTED:] = True
    ids = episodes.ids[listed]
    open_ids = ids[episodes.flags[listed] == OPEN]
    end = int(ids[-1]) + 1 if len(ids) else 0
    sent = listed & (episodes.ids >= since)
    columns: dict[str, Any] = {
        "episode": episodes.ids[sent],
        "length": episodes.lengths[sent],
        "state": [STATES[flag] for flag in episodes.flags[sent].tolist()],
    }
    if survey.has_returns:
        columns["return"] = survey.returns[sent]
    for name, values in episodes.meta.items():
        shown = values[sent] if values.ndim == 1 else as_texts(values[sent])
        if shown is not None:
            columns[f"meta.{name}" if name in OWN_COLUMNS else name] = shown
    return {
        "version": survey.version,
        "summary": summary.to_json(),
        "episodes": {name: _plain(values) for name, values in columns.items()},
        "first": int(ids[0]) if len(ids) else 0,
        "settled": int(open_ids.min()) if len(open_ids) else end,
    }


def _plain(values: Any) -> Any:
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        return [
            None if not np.isfinite(value) else float(f"{value:.6g}") for value in values.tolist()
        ]
    return to_json(values)


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
