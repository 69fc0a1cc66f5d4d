"""The page of a study: how the best value grew, which options mattered, and every trial."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from sharpwave.pages.chart import Charts
from sharpwave.pages.curves import Series
from sharpwave.pages.markup import Html, join, tag
from sharpwave.pages.page import definitions, masthead, page, section, table, tile
from sharpwave.pages.text import count, duration, number, score, share
from sharpwave.tuning.trials import Trial


def page_of(
    algorithm: str, env: str, trials: list[Trial], best: Trial, importances: dict[str, float]
) -> str:
    """The whole page.

    Args:
        algorithm: Name of the algorithm.
        env: Id of the environment.
        trials: All trials.
        best: The best one.
        importances: Share of each option, the most important first.
    """
    charts = Charts()
    facts = [tag("span", f"{algorithm} in {env}"), tag("span", count(len(trials), "trial"))]
    sections = [
        _tiles(trials, best),
        section("Best so far", _history(charts, trials)),
        section("Best configuration", definitions(_values(best.options))),
        section("What mattered", _importances(importances)),
        section("Trials", _table(trials)),
    ]
    header = masthead("tuning", join(f"{algorithm} · {env}"), facts)
    return page(f"{algorithm} {env} · sharpwave", header, sections, {"charts": charts.data})


def _tiles(trials: list[Trial], best: Trial) -> Html:
    spent = sum(trial.seconds or 0.0 for trial in trials)
    ended = {state: sum(trial.state == state for trial in trials) for state in _STATES}
    return tag(
        "dl",
        tile("best return", score(best.value), f"trial {best.number}", color=1),
        *(tile(name, count(ended[state])) for state, name in _STATES.items() if ended[state]),
        tile("in trials", duration(spent)),
        class_="tiles",
    )


_STATES = {"complete": "complete", "pruned": "pruned", "failed": "failed", "lost": "lost"}


def _history(charts: Charts, trials: list[Trial]) -> Html:
    complete = [(trial.number, trial.value) for trial in trials if trial.state == "complete"]
    cut = [
        (trial.number, trial.value)
        for trial in trials
        if trial.state == "pruned" and trial.value is not None
    ]
    numbers = np.array([number for number, _ in complete], dtype=float)
    values = np.array([value for _, value in complete], dtype=float)
    best = np.array(list(accumulate(values, max)))
    series = [Series(name="trial", color=2, x=numbers, y=values, kind="points")]
    if cut:
        x, y = np.array(cut, dtype=float).T
        series.append(Series(name="pruned", color=3, x=x, y=y, kind="points"))
    series.append(Series(name="best so far", color=1, x=numbers, y=best))
    return charts.chart("return", series, size="large", x_name="trial", group="trials")


def _importances(importances: dict[str, float]) -> Html:
    if not importances:
        return tag("p", "Too few trials to tell.", class_="empty")
    note = "Share of the difference between good trials and all that an option explains."
    rows: list[list[Any]] = [[name, share(part)] for name, part in importances.items()]
    return join(tag("p", note), table(["option", "share"], rows))


def _table(trials: list[Trial]) -> Html:
    names = list(dict.fromkeys(name for trial in trials for name in trial.options))
    ordered = sorted(
        trials, key=lambda trial: (trial.state != "complete", -(trial.value or -np.inf))
    )
    rows: list[list[Any]] = [
        [
            str(trial.number),
            trial.state if trial.reason is None else f"{trial.state}: {trial.reason}",
            score(trial.value),
            duration(trial.seconds),
            *(_text(trial.options.get(name)) for name in names),
        ]
        for trial in ordered
    ]
    return table(["trial", "state", "return", "time", *names], rows)


def _values(options: dict[str, Any]) -> list[tuple[Any, Any]]:
    return [(name, _text(value)) for name, value in options.items()]


def _text(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    return number(value) if isinstance(value, int | float) else str(value)
