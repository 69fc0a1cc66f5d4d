"""The part of a report on each of several agents."""

from __future__ import annotations

import numpy as np

from sharpwave.pages.chart import Charts
from sharpwave.pages.curves import Series, finite, thinned
from sharpwave.pages.headline import Headline
from sharpwave.pages.markup import Html
from sharpwave.pages.page import section
from sharpwave.pages.units import singular
from sharpwave.storage.run_folder import Evaluation
from sharpwave.types import Doubles

__all__ = ["agents_section", "is_of_an_agent"]

POINTS = 1000
"""Maximum number of points of a curve."""
COLORS = 6


def is_of_an_agent(name: str, headline: Headline) -> bool:
    """Return whether a metric is the return of a group or an agent, as in `agents_section`."""
    return headline.is_return and name.startswith(f"{headline.metric}/")


def agents_section(
    charts: Charts,
    unit: str,
    headline: Headline,
    metrics: dict[str, Doubles],
    evaluations: list[Evaluation],
) -> Html | None:
    """The returns of each group and agent; None where a run has but one agent.

    Args:
        charts: Collection of the charts of the page.
        unit: Unit of the steps.
        headline: The headline metric of the run.
        metrics: Columns by name.
        evaluations: Of the run.
    """
    names = [name for name in metrics if is_of_an_agent(name, headline)]
    trained = [
        _curve(name.partition("/")[2], number, metrics["step"], metrics[name])
        for number, name in enumerate(names)
    ]
    steps = np.array([float(one.step) for one in evaluations])
    agents = dict.fromkeys(agent for one in evaluations for agent in one.agents)
    evaluated = [
        _curve(agent, number, steps, _means(evaluations, agent))
        for number, agent in enumerate(agents)
    ]
    figures = [
        charts.chart(
            title,
            series,
            size="large medium",
            hint=f"{hint}, over {unit}",
            x_name=singular(unit),
        )
        for title, hint, curves in (
            ("Return by group and agent", "training: mean of the last 100 episodes", trained),
            ("Evaluations by agent", "mean return", evaluated),
        )
        if (series := [curve for curve in curves if len(curve.x)])
    ]
    return section("Agents", *figures) if figures else None


def _curve(name: str, number: int, x: Doubles, y: Doubles) -> Series:
    x, y = finite(x, y)
    kept = thinned(y, POINTS)
    return Series(name=name, color=number % COLORS + 1, x=x[kept], y=y[kept])


def _means(evaluations: list[Evaluation], agent: str) -> Doubles:
    return np.array([one.agents.get(agent, np.nan) for one in evaluations])
