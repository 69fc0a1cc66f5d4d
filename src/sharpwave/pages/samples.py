"""Sampled completions of a language model: a few rows of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["as_text", "picked"]


def picked(rows: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The best, the median and the worst row by reward, as far as there are so many.

    Rows without a reward are passed over; where no row has one, the first is "unscored".

    Example:
        >>> found = picked([{"reward": 0.5}, {"reward": None}, {"reward": 1.0}])
        >>> [(rank, row["reward"]) for rank, row in found.items()]
        [('best', 1.0), ('worst', 0.5)]
    """
    # Rows may be made when they are asked for: then their rewards are known without that.
    rewards = getattr(rows, "rewards", None) or [row["reward"] for row in rows]
    order = [i for i, reward in enumerate(rewards) if reward is not None]
    order.sort(key=lambda i: -rewards[i])
    if not order:
        return {"unscored": rows[0]} if len(rows) else {}
    places = {"best": 0, "worst": len(order) - 1, "median": len(order) // 2}
    ranks: dict[int, str] = {}
    for rank, place in places.items():
        ranks.setdefault(place, rank)  # a row of several ranks has the first
    return {ranks[place]: rows[order[place]] for place in sorted(ranks)}


def as_text(written: Any) -> str:
    """A prompt or a completion to read: text as it is, tokens as numbers."""
    return written if isinstance(written, str) else " ".join(map(str, written))
