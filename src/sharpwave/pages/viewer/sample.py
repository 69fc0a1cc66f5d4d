"""The episodes that a page of one file carries: which, and how much of them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sharpwave.pages.viewer.detail import detail, frame
from sharpwave.pages.viewer.source import COMPLETE, Progress, Rows
from sharpwave.pages.viewer.survey import Survey

LONGEST_SIDE = 256
"""Of an image in the page; larger ones are shrunk."""

MOST_FRAMES = 500
"""Images of one field and episode."""


@dataclass(frozen=True)
class Sample:
    """Episodes for a page.

    Attributes:
        episodes: What `detail` gives of each, with its images; by id.
        reasons: Why an episode is there, by id.
    """

    episodes: dict[int, dict[str, Any]]
    reasons: dict[int, str]


def choose(survey: Survey, n: int) -> dict[int, str]:
    """At most `n` episodes that show what a folder holds, and why each was taken.

    The best, the worst and the one in the middle by return; the newest, the oldest, the longest and
    the shortest; then others, evenly spread.
    """
    episodes = survey.episodes
    usable = np.flatnonzero(episodes.lengths > 0)
    complete = usable[episodes.flags[usable] == COMPLETE]
    pool = complete if len(complete) else usable
    chosen: dict[int, str] = {}
    for at, reason in _candidates(survey, pool):
        if len(chosen) == n:
            break
        chosen.setdefault(int(episodes.ids[at]), reason)
    return chosen


def _candidates(survey: Survey, pool: Rows) -> Iterator[tuple[int, str]]:
    if not len(pool):
        return
    returns = survey.returns[pool]
    if survey.has_returns and np.isfinite(returns).any():
        ranked = pool[np.argsort(np.where(np.isfinite(returns), returns, -np.inf), kind="stable")]
        ranked = ranked[np.count_nonzero(~np.isfinite(returns)) :]
        yield int(ranked[-1]), "best return"
        yield int(ranked[0]), "worst return"
        yield int(ranked[len(ranked) // 2]), "median return"
    by_length = pool[np.argsort(survey.episodes.lengths[pool], kind="stable")]
    yield int(pool[-1]), "newest"
    yield int(pool[0]), "oldest"
    yield int(by_length[-1]), "longest"
    yield int(by_length[0]), "shortest"
    # Halves, quarters, eighths: whatever the number asked for, they lie evenly.
    parts = 2
    while parts < 2 * len(pool):
        for i in range(1, parts, 2):
            yield int(pool[len(pool) * i // parts]), "evenly spread"
        parts *= 2


def sample(survey: Survey, n: int, limit: int, progress: Progress | None = None) -> Sample:
    """The episodes of a page.

    Args:
        survey: The folder.
        n: Episodes at most.
        limit: Bytes of the page that they may take. Curves go first; images get what is left, every
            second or third of an episode and so on where it is not enough for all of them.
        progress: Told how far it is.
    """
    reasons = choose(survey, n)
    found: dict[int, dict[str, Any]] = {}
    left = limit
    for episode in reasons:
        try:
            one = detail(survey, episode)
        except (IndexError, KeyError):  # the writer let it go in between
            continue
        size = len(json.dumps(one))
        if found and size > left:
            break
        found[episode], left = one, left - size
    pictured = [one for one in found.values() if one["pictures"]]
    for done, one in enumerate(pictured):
        spent = _add_frames(survey, one, max(left, 0) // (len(pictured) - done))
        left -= spent
        if progress is not None:
            progress("images", done + 1, len(pictured))
    return Sample(found, {episode: reasons[episode] for episode in found})


def _add_frames(survey: Survey, one: dict[str, Any], limit: int) -> int:
    """Add images to the pictures of an episode, and say how many bytes they take."""
    spent = 0
    for place, picture in enumerate(one["pictures"]):
        share = (limit - spent) // (len(one["pictures"]) - place)
        first = _frame(survey, one["id"], picture["field"], 0)
        affordable = min(max(share // max(len(first), 1), 1), MOST_FRAMES)
        every = -(-one["length"] // affordable)
        frames: list[str] = []
        used = 0
        for step in range(0, one["length"], every):
            try:
                text = _frame(survey, one["id"], picture["field"], step)
            except (IndexError, OSError):
                break
            if frames and used + len(text) > share:
                break
            frames.append(text)
            used += len(text)
        picture |= {"every": every, "frames": frames, "longest": LONGEST_SIDE}
        spent += used
    return spent


def _frame(survey: Survey, episode: int, field: str, step: int) -> str:
    png = frame(survey, episode, field, step, longest=LONGEST_SIDE)
    return base64.b64encode(png).decode()
