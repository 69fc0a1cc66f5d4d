"""State of the page: the summary, and a table of episodes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from sharpwave.pages.viewer.detail import as_texts
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
