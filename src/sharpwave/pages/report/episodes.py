"""The returns of the single episodes of training."""

from __future__ import annotations

import numpy as np

from sharpwave.pages.chart import Charts
from sharpwave.pages.curves import Series
from sharpwave.pages.markup import Html, tag
from sharpwave.pages.page import section
from sharpwave.pages.text import count
from sharpwave.types import Doubles

__all__ = ["episodes_section"]

STRETCHES = 200
"""Points of the curve at most."""


def episodes_section(charts: Charts, episodes: dict[str, Doubles], unit: str) -> Html | None:
    """Mean, lowest and highest return of the episodes of each stretch of a run.

    Args:
        charts: The charts of the page.
        episodes: The columns of `episodes.csv`.
        unit: Unit of the steps of the run.
    """
    steps, returns = episodes.get("step", np.empty(0)), episodes.get("r", np.empty(0))
    known = np.isfinite(steps) & np.isfinite(returns)
    steps, returns = steps[known], returns[known]
    ends = np.unique(steps)
    if len(ends) < 2:
        return None
    stretches = [
        returns[(steps >= stretch[0]) & (steps <= stretch[-1])]
        for stretch in np.array_split(ends, min(STRETCHES, len(ends)))
    ]
    series = Series(
        name="episodes",
        color=1,
        x=np.array([part[-1] for part in np.array_split(ends, len(stretches))]),
        y=np.array([stretch.mean() for stretch in stretches]),
        low=np.array([stretch.min() for stretch in stretches]),
        high=np.array([stretch.max() for stretch in stretches]),
    )
    hint = f"mean, lowest and highest of each stretch, over {unit}"
    chart = charts.chart("Return of episodes", [series], size="large", hint=hint)
    lengths = episodes.get("l", np.empty(0))
    longest = int(np.max(lengths, where=np.isfinite(lengths), initial=0))
    said = f"{count(len(returns), 'episode')} in training, the longest of {count(longest, 'step')}."
    return section("Episodes", tag("p", said), chart)
