"""The part of a report that shows what a language model wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sharpwave.pages.markup import Html, tag
from sharpwave.pages.page import section, table
from sharpwave.pages.samples import as_text
from sharpwave.pages.text import count, is_number, score
from sharpwave.pages.units import singular
from sharpwave.printable import printable

MOST_UPDATES = 200
"""Updates that the page holds."""

LONGEST = 4000
"""Characters of a text that the page holds."""

STAGES = 6
"""Updates of the table."""

SHORT = 90
"""Characters of a text that the table holds."""

RANKS = ("best", "median", "worst", "unscored")
"""Ranks of completions, in the order they are shown."""

Rows = Mapping[str, Mapping[str, Any]]
"""Rows by rank."""


def samples_section(samples: Mapping[int, Rows], unit: str) -> tuple[Html | None, dict[str, Any]]:
    """The section, and what the script needs for it; nothing of either without samples.

    Args:
        samples: Rows by step, as `RunFolder.samples` has them.
        unit: Unit of the steps, in the plural.
    """
    known = [step for step, rows in samples.items() if any(rank in rows for rank in RANKS)]
    if not known:
        return None, {}
    kept = np.unique(np.linspace(0, len(known) - 1, MOST_UPDATES).round().astype(int))
    updates = [{"step": known[i], "rows": _listed(samples[known[i]])} for i in kept]
    one = singular(unit)
    note = f"best, median and worst completion by reward, {one} by {one}"
    if len(updates) < len(known):
        note = f"{note}; {len(updates):,} of {len(known):,}, the others are in samples.jsonl"
    without = tag("noscript", "The texts are in samples.jsonl; here its script shows them.")
    card = tag("div", without, class_="card samples", id="samples")
    data = {"unit": one, "updates": updates}
    stages = np.unique(np.linspace(0, len(known) - 1, STAGES).round().astype(int))
    return (
        section(
            "What it wrote",
            _stages([(known[i], samples[known[i]]) for i in stages], one),
            card,
            note=note,
        ),
        {"samples": data},
    )


def _stages(found: list[tuple[int, Rows]], unit: str) -> Html:
    """The median completion of a few updates: how the writing went, at one glance."""
    rows = []
    for step, ranked in found:
        row = ranked[next(rank for rank in ("median", *RANKS) if rank in ranked)]
        reward = row.get("reward")
        shown = [_start(row.get(name)) for name in ("prompt", "completion")]
        rows.append([count(step), *shown, score(reward) if is_number(reward) else ""])
    head = [unit.capitalize(), "Prompt", "Median completion", "Reward"]
    return table(head, rows, class_="numbers stages")


def _start(written: Any) -> Html:
    # What is no text, as half of a character is not, is shown by its number.
    text = printable(_text(written)[0], lines=False).encode("utf-8", "backslashreplace").decode()
    return tag("code", text if len(text) <= SHORT else f"{text[:SHORT]}\N{HORIZONTAL ELLIPSIS}")


def _listed(rows: Rows) -> list[dict[str, Any]]:
    return [_plain(rank, rows[rank]) for rank in RANKS if rank in rows]


def _plain(rank: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a row that the page shows, checked, as the file may hold anything."""
    rewards, finished = row.get("rewards"), row.get("finished")
    return {
        "rank": rank,
        "prompt": _text(row.get("prompt")),
        "completion": _text(row.get("completion")),
        "rewards": [[str(name), _number(value)] for name, value in rewards.items()]
        if isinstance(rewards, dict)
        else [],
        **{name: _number(row.get(name)) for name in ("reward", "advantage", "length")},
        "finished": finished if isinstance(finished, bool) else None,
    }


def _text(written: Any) -> tuple[str, int]:
    """As much of a text as the page holds, and how many characters are left out."""
    text = as_text(written) if isinstance(written, str | list) else ""
    return text[:LONGEST], max(len(text) - LONGEST, 0)


def _number(value: Any) -> float | None:
    return value if is_number(value) else None
