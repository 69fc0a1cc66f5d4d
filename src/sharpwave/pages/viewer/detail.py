"""One episode for the page: its curves, its heat maps and its images."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from sharpwave.formats.text import decode_text
from sharpwave.pages.curves import thinned
from sharpwave.pages.viewer.pictures import draw, heat_map, to_png
from sharpwave.pages.viewer.ranges import Tally
from sharpwave.pages.viewer.source import STATES, Column, Rows
from sharpwave.pages.viewer.survey import Survey
from sharpwave.storage.files import to_json
from sharpwave.types import Array

MOST_POINTS = 1000
"""Points of one curve."""

MOST_ROWS = 20_000
"""Steps of one episode that are read for its curves; of a longer one, evenly spread ones."""

MOST_CURVES = 8
"""Numbers in a value that are drawn as curves; more become a heat map."""

MOST_COMPONENTS = 256
"""Rows of a heat map."""

STEP_ROLES = ("reward", "action", "obs", "extra", "terminated", "truncated", "next_obs")
"""The order in which curves are shown."""


def find(survey: Survey, episode: int) -> int:
    """The place of an episode in the survey.

    Raises:
        KeyError: There is no such episode, or no longer.
    """
    ids = survey.episodes.ids
    at = int(np.searchsorted(ids, episode))
    if at == len(ids) or ids[at] != episode:
        raise KeyError(f"there is no episode {episode}")
    return at


def detail(survey: Survey, episode: int) -> dict[str, Any]:
    """Everything that the page shows of an episode, but for its images.

    Args:
        survey: The folder.
        episode: The id.

    Returns:
        id, state, length, return, meta; pictures, curves, heats and unreadable, a list each.

    Raises:
        KeyError: There is no such episode.
        IndexError: It went away in between.
    """
    at = find(survey, episode)
    episodes = survey.episodes
    start, length = int(episodes.starts[at]), int(episodes.lengths[at])
    rank = {role: i for i, role in enumerate(STEP_ROLES)}
    shown = sorted(
        (column for column in survey.source.columns if not column.per_episode),
        key=lambda column: rank.get(column.role, len(rank)),
    )
    parts: dict[str, list[Any]] = {"pictures": [], "curves": [], "heats": [], "unreadable": []}
    for column in shown:
        kind, part = _part(survey, column, start, length)
        parts[kind].append(part)
    return {
        "id": episode,
        "state": STATES[int(episodes.flags[at])],
        "length": length,
        "return": to_json(float(survey.returns[at])) if survey.has_returns else None,
        "meta": {name: _meta(values, at) for name, values in episodes.meta.items()},
        **parts,
    }


def frame(survey: Survey, episode: int, field: str, step: int, *, longest: int = 512) -> bytes:
    """The image of a field at a step, as PNG.

    Raises:
        KeyError: There is no such episode, or no such image field.
        IndexError: There is no such step, or no longer.
    """
    at = find(survey, episode)
    if field not in survey.layouts:
        raise KeyError(f"there is no image field {field}")
    length = int(survey.episodes.lengths[at])
    if not 0 <= step < length:
        raise IndexError(f"step must be from 0 to {length - 1}, got {step}")
    rows = survey.episodes.starts[at : at + 1] + step
    return to_png(pixels(survey, field, survey.source.read(rows, field)[0], longest))


def pixels(survey: Survey, field: str, value: Array, longest: int) -> Any:
    """A value of an image field as pixels, scaled by all that was seen of the field."""
    tally = survey.tallies[field]
    low, high = min(tally.low, 0.0), max(tally.high, 1.0)
    # What lies within [0, 1] is taken as such, anything else is stretched to what was seen.
    if tally.low < 0.0 or tally.high > 1.0:
        low, high = tally.low, tally.high
    return draw(value, survey.layouts[field], low, high, longest)


def _meta(values: Array, at: int) -> Any:
    texts = as_texts(values[at : at + 1])
    return to_json(values[at]) if texts is None else texts[0]


def _spread(length: int, most: int) -> Rows:
    """At most that many steps of an episode, from the first to the last."""
    if length <= most:
        return np.arange(length)
    steps: Rows = np.linspace(0, length - 1, most).round().astype(np.int64)
    return steps


def _part(survey: Survey, column: Column, start: int, length: int) -> tuple[str, Any]:
    """The list that a field goes to, and the part of it that is shown."""
    if column.name in survey.layouts:
        return "pictures", {"field": column.name, "role": column.role, "every": 1}
    steps = _spread(length, MOST_ROWS if column.size <= MOST_CURVES else MOST_POINTS)
    try:
        values = survey.source.read(start + steps, column.name)
    except OSError as error:
        return "unreadable", f"{column.name}: {error}"
    if column.size <= MOST_CURVES:
        return "curves", _curves(column, steps, values)
    return "heats", _heat(column, values, survey.tallies[column.name])


def _curves(column: Column, steps: Rows, values: Array) -> dict[str, Any]:
    """A curve for every number in the values [n, *shape]."""
    table = values.reshape(len(values), -1).astype(np.float64)
    lines = []
    for place, y in zip(np.ndindex(*column.shape), table.T, strict=True):
        x = steps
        if len(y) > MOST_POINTS:
            kept = np.flatnonzero(np.isfinite(y))
            kept = kept[thinned(y[kept], MOST_POINTS)]
            x, y = steps[kept], y[kept]
        name = column.name + "".join(f"[{i}]" for i in place)
        line: dict[str, Any] = {"name": name, "y": [_rounded(value) for value in y.tolist()]}
        if len(x) != len(steps) or (len(steps) and steps[-1] != len(steps) - 1):
            line["x"] = x.tolist()
        lines.append(line)
    stepped = np.dtype(column.dtype).kind in "biu"
    return {"field": column.name, "role": column.role, "stepped": stepped, "lines": lines}


def _heat(column: Column, values: Array, tally: Tally) -> dict[str, Any]:
    """Heat map of numbers: steps from left to right, the numbers of a value from top to bottom."""
    table = values.reshape(len(values), -1).T
    kept = _spread(len(table), MOST_COMPONENTS)
    picture = heat_map(table[kept], tally.low, tally.high) if table.size else None
    return {
        "field": column.name,
        "role": column.role,
        "components": column.size,
        "shown": len(kept),
        "low": to_json(tally.low),
        "high": to_json(tally.high),
        "png": None if picture is None else base64.b64encode(to_png(picture)).decode(),
    }


def _rounded(value: float) -> float | int | None:
    if not np.isfinite(value):
        return None
    short = float(f"{value:.5g}")
    return int(short) if short.is_integer() else short


def as_texts(values: Array) -> list[str] | None:
    """The texts that rows of bytes [n, width] spell, None when they are no texts.

    Example:
        >>> as_texts(np.array([[103, 111, 0], [117, 112, 0]], np.uint8))
        ['go', 'up']
        >>> as_texts(np.array([[1, 2, 3]], np.uint8)) is None
        True
    """
    if values.dtype != np.uint8 or values.ndim != 2 or values.shape[1] < 2:
        return None
    try:
        texts = decode_text(values)
    except UnicodeDecodeError:
        return None
    return texts if all(text.isprintable() for text in texts) and any(texts) else None
