"""The comparison of several runs: seeds of one algorithm, or several algorithms."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave.files import replace_file
from sharpwave.pages.chart import Charts
from sharpwave.pages.curves import Floats, Range, Series, finite
from sharpwave.pages.markup import Html, join, tag
from sharpwave.pages.page import masthead, page, section, table, tile
from sharpwave.pages.text import duration, number, score
from sharpwave.train.run_folder import RunFolder
from sharpwave.train.statistics import (
    Summary,
    aggregate,
    iqm_curve,
    performance_profile,
    probability_of_improvement,
)

N_POINTS = 200
"""Points of a curve over runs."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a comparison needs of a run."""

    folder: RunFolder
    config: dict[str, Any]
    summary: dict[str, Any]
    x: Floats
    """[n] steps at which the training return is known."""
    y: Floats
    """[n] training return."""
    evaluated: float | None
    """Mean return of the last evaluation."""

    @property
    def trained(self) -> float | None:
        """The last training return."""
        return float(self.y[-1]) if len(self.y) else None


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runs that differ in nothing but their seed."""

    name: str
    color: int
    runs: list[Run]
    scores: Floats
    """[n_runs] final scores, of the runs that have one."""
    summary: Summary | None
    """Of the scores, None without any."""


def write_comparison(
    run_dirs: Iterable[str | os.PathLike[str]], out_path: str | os.PathLike[str]
) -> Path:
    """Writes one page that compares runs over seeds, algorithms and settings.

    Runs are put together by environment, then by algorithm and by the options in which they differ,
    the seed aside. The curves are interquartile means of the training return up to the step that
    all runs of a group reached; bands and intervals are 95 % bootstrap intervals.

    Args:
        run_dirs: Folders of runs.
        out_path: The file to write; its folder is made if missing.

    Returns:
        Path of the page.

    Raises:
        FileNotFoundError: A folder holds no run.
        ValueError: run_dirs is empty.
    """
    runs = [_read(path) for path in run_dirs]
    if not runs:
        raise ValueError("run_dirs must name at least one run")
    out = Path(out_path)
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_file(out, _page(runs, out.parent))
    return out


def _read(path: str | os.PathLike[str]) -> Run:
    folder = RunFolder(path)
    if not folder.exists:
        raise FileNotFoundError(f"run_dirs must be folders of runs, got {folder.path}")
    metrics, evaluations = folder.metrics(), folder.evaluations()
    nothing: Floats = np.array([])
    x, y = finite(metrics.get("step", nothing), metrics.get("mean_reward", nothing))
    return Run(
        folder=folder,
        config=folder.config,
        summary=folder.summary,
        x=x,
        y=y,
        evaluated=evaluations[-1].mean if evaluations else None,
    )


def _page(runs: list[Run], base: Path) -> str:
    envs: dict[str, list[Run]] = {}
    for run in runs:
        envs.setdefault(str(run.config.get("env") or "an environment without a name"), []).append(
            run
        )
    charts, sections = Charts(), []
    for env, members in envs.items():
        evaluated = all(run.evaluated is not None for run in members)
        groups = _groups(members, evaluated)
        sections.append(tag("h2", env, class_="chapter") if len(envs) > 1 else None)
        sections.append(tag("dl", *(_tile(group) for group in groups), class_="tiles"))
        sections.append(section("Learning curves", _curves(charts, groups)))
        sections.append(_finals(charts, groups, evaluated))
        sections.append(_improvement(groups))
    sections.append(_runs(runs, base))
    seeds = {run.config.get("seed") for run in runs}
    algorithms = list(dict.fromkeys(_algorithm(run) for run in runs))
    title = join(" and ".join(algorithms), tag("i", " on "), ", ".join(envs))
    facts = [tag("span", f"{len(runs)} runs"), tag("span", f"{len(seeds)} seeds")]
    shown = [part for part in sections if part is not None]
    header = masthead("comparison", title, facts)
    name = f"{' and '.join(algorithms)} on {', '.join(envs)}"
    return page(name, header, shown, {"charts": charts.data})


def _algorithm(run: Run) -> str:
    return str(run.config.get("algorithm") or "Run").upper()


def _groups(runs: list[Run], evaluated: bool) -> list[Group]:
    """Runs by algorithm and by the options that tell them apart."""
    named: dict[str, list[Run]] = {}
    for run in runs:
        named.setdefault(_group_name(run, runs), []).append(run)
    groups = []
    for color, (name, members) in enumerate(named.items()):
        finals = [run.evaluated if evaluated else run.trained for run in members]
        scores = np.array([final for final in finals if final is not None])
        groups.append(
            Group(
                name=name,
                color=color % 6 + 1,
                runs=members,
                scores=scores,
                summary=aggregate(scores) if len(scores) else None,
            )
        )
    return groups


def _group_name(run: Run, runs: list[Run]) -> str:
    peers = [_options(other) for other in runs if _algorithm(other) == _algorithm(run)]
    own = _options(run)
    names = dict.fromkeys(name for options in peers for name in options)
    apart = [n for n in names if n != "seed" and any(p.get(n) != own.get(n) for p in peers)]
    return " ".join([_algorithm(run), *(f"{name}={own.get(name)}" for name in apart)])


def _options(run: Run) -> dict[str, Any]:
    options = run.config.get("config")
    return options if isinstance(options, dict) else {}


def _tile(group: Group) -> Html:
    summary = group.summary
    if summary is None:
        return tile(group.name, number(None), "no episode ended")
    low, high = summary.interval
    detail = f"IQM of {summary.n_runs} seeds, 95 % interval [{score(low)}, {score(high)}]"
    return tile(group.name, score(summary.iqm), detail, color=group.color)


def _curves(charts: Charts, groups: list[Group]) -> Html:
    series = []
    for group in groups:
        known = [run for run in group.runs if len(run.x)]
        if not known:
            continue
        first, last = max(run.x[0] for run in known), min(run.x[-1] for run in known)
        grid = np.linspace(min(first, last), last, N_POINTS)
        band = iqm_curve(grid, [np.interp(grid, run.x, run.y) for run in known])
        series.append(
            Series(
                name=group.name,
                color=group.color,
                x=np.round(band.x),
                y=band.center,
                low=band.low,
                high=band.high,
            )
        )
    hint = "interquartile mean of the training return over seeds, 95 % bootstrap interval"
    return charts.chart("Episode return", series, size="large", hint=hint)


def _finals(charts: Charts, groups: list[Group], evaluated: bool) -> Html | None:
    scored = [group for group in groups if group.summary is not None]
    if not scored:
        return None
    every = np.concatenate([group.scores for group in scored])
    low, high = float(every.min()), float(every.max())
    rows = [_final_row(group, group.summary, low, high) for group in scored if group.summary]
    head = ["", "Seeds", "IQM", "95 % interval", "Mean", "Std", "Median", "Worst", "Best", ""]
    margin = 0.04 * (high - low) or max(abs(high), 1.0) * 0.1
    thresholds = np.linspace(low - margin, high + margin, N_POINTS)
    series = []
    for group in scored:
        band = performance_profile(group.scores, thresholds)
        series.append(
            Series(
                name=group.name,
                color=group.color,
                x=thresholds,
                y=band.center,
                low=band.low,
                high=band.high,
            )
        )
    profile = charts.chart(
        "Performance profile",
        series,
        size="large medium",
        hint="share of seeds whose final score is above the threshold, 95 % bootstrap interval",
        x_name="score above",
        group="scores",
        x=Range(float(thresholds[0]), float(thresholds[-1])),
        y=Range(0.0, 1.04),
    )
    note = "mean return of the last evaluation" if evaluated else "last training return"
    return section("Final scores", table(head, rows, class_="numbers finals"), profile, note=note)


def _final_row(group: Group, summary: Summary, low: float, high: float) -> list[Any]:
    return [
        tag("span", group.name, class_=f"key c{group.color}"),
        summary.n_runs,
        tag("b", score(summary.iqm)),
        f"[{score(summary.interval[0])}, {score(summary.interval[1])}]",
        score(summary.mean),
        score(summary.std),
        score(summary.median),
        score(summary.minimum),
        score(summary.maximum),
        _strip(group, summary, low, high),
    ]


def _strip(group: Group, summary: Summary, low: float, high: float) -> Html:
    """Every seed as a tick, the interval as a bar and the interquartile mean as a dot."""
    width = high - low or 1.0
    *ticks, start, end, middle = (
        f"{6 + 188 * (value - low) / width:.1f}"
        for value in [*group.scores, *summary.interval, summary.iqm]
    )
    return tag(
        "svg",
        tag("path", d=f"M{start} 9H{end}", class_="interval"),
        tag("path", d="".join(f"M{tick} 3V15" for tick in ticks)),
        tag("path", d=f"M{middle} 9h0", class_="middle"),
        class_=f"strip c{group.color}",
        viewBox="0 0 200 18",
        aria_hidden="true",
    )


def _improvement(groups: list[Group]) -> Html | None:
    """Probability that the algorithm of a row beats that of a column."""
    scored = [group for group in groups if len(group.scores)]
    if len(scored) < 2:
        return None
    rows = [
        [
            tag("span", row.name, class_=f"key c{row.color}"),
            *(
                ""
                if row is column
                else f"{probability_of_improvement(row.scores, column.scores):.0%}"
                for column in scored
            ),
        ]
        for row in scored
    ]
    head = ["", *(group.name for group in scored)]
    return section(
        "Probability of improvement",
        table(head, rows),
        note="of the row over the column, a seed against a seed",
    )


def _runs(runs: list[Run], base: Path) -> Html:
    rows = []
    for run in runs:
        name: Any = run.folder.path.name or str(run.folder.path)
        if run.folder.report_file.exists():
            target = os.path.relpath(run.folder.report_file, base)
            name = tag("a", name, href=Path(target).as_posix())
        summary = run.summary
        rows.append(
            [
                name,
                _algorithm(run),
                run.config.get("env"),
                run.config.get("seed"),
                score(run.evaluated),
                score(run.trained),
                number(summary.get("timesteps"), 9),
                duration(summary.get("wall_seconds")),
                summary.get("status") or "",
            ]
        )
    head = [
        "Run",
        "Algorithm",
        "Environment",
        "Seed",
        "Evaluated",
        "Trained",
        "Steps",
        "Wall time",
        "Status",
    ]
    return section("Runs", table(head, rows, class_="numbers runs"))
