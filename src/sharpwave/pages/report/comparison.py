"""The comparison of several runs: seeds of one algorithm, or several algorithms."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave.pages.chart import Charts
from sharpwave.pages.curves import Range, Series, finite
from sharpwave.pages.headline import Headline
from sharpwave.pages.markup import Html, join, tag
from sharpwave.pages.page import masthead, page, section, table, tile
from sharpwave.pages.report.statistics import (
    ScoreSummary,
    aggregate,
    iqm_curve,
    performance_profile,
    probability_of_improvement,
)
from sharpwave.pages.report.told import (
    curve_of,
    headline_of,
    subject_of,
    title_of,
    unit_of,
)
from sharpwave.pages.text import count, duration, is_number, number, score, share
from sharpwave.storage.files import replace_file
from sharpwave.storage.run_folder import RunFolder
from sharpwave.types import Doubles

FEW = 5
"""Seeds of which a bootstrap interval says too little."""

N_POINTS = 200
"""Points of a curve over runs."""


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """A run as a comparison shows it."""

    folder: RunFolder
    config: dict[str, Any]
    summary: dict[str, Any]
    headline: Headline
    """The metric that it is judged by."""
    x: Doubles
    """[n] steps at which the curve is known."""
    y: Doubles
    """[n] that metric in training, or mean returns of evaluations where nothing measures it."""
    steps: float | None
    """Number of steps that it took."""
    trained: float | None
    """The last value of the metric in training."""
    evaluated: float | None
    """Mean return of the last evaluation."""
    success_rate: float | None
    """Success rate of that evaluation, where the environment tells it."""


@dataclass(frozen=True, kw_only=True)
class SeedGroup:
    """Runs that differ in nothing but their seed."""

    name: str
    color: int
    runs: list[ComparedRun]
    headline: Headline
    """The metric that the scores are of."""
    scores: Doubles
    """[n_runs] final scores, of the runs that have one."""
    summary: ScoreSummary | None
    """Statistics of the scores; None without any."""

    @property
    def has_spread(self) -> bool:
        """True if there are several scores: a single one has no confidence interval."""
        return len(self.scores) > 1


def write_comparison(
    run_dirs: Iterable[str | os.PathLike[str]], out_path: str | os.PathLike[str]
) -> Path:
    """Writes one page that compares runs over seeds, algorithms and settings.

    Runs are put together by what they learn from and are judged by, then by algorithm and by the
    options in which they differ, the seed aside. The curves are interquartile means of the metric
    that they are judged by (of evaluations, where nothing is played in training) up to the step
    that all runs of a group reached; bands and intervals are 95 % bootstrap intervals. One run
    alone has no interval, and no probability of being better.

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


def _read(path: str | os.PathLike[str]) -> ComparedRun:
    folder = RunFolder(path)
    if not folder.exists:
        raise FileNotFoundError(f"run_dirs must be folders of runs, got {folder.path}")
    metrics, evaluations = folder.metrics(), folder.evaluations()
    headline = headline_of(folder.config)
    nothing: Doubles = np.array([])
    every = metrics.get("step", nothing)
    x, y = finite(every, metrics.get(headline.metric, nothing))
    trained = float(y[-1]) if len(y) else None
    if not len(y):
        x = np.array([float(one.step) for one in evaluations])
        y = np.array([one.mean for one in evaluations])
    summarized = folder.summary.get("timesteps")
    known = [*every[-1:], *([summarized] if is_number(summarized) else [])]
    return ComparedRun(
        folder=folder,
        config=folder.config,
        summary=folder.summary,
        headline=headline,
        x=x,
        y=y,
        steps=max(map(float, known), default=None),
        trained=trained,
        evaluated=evaluations[-1].mean if evaluations else None,
        success_rate=evaluations[-1].success_rate if evaluations else None,
    )


def _page(runs: list[ComparedRun], base: Path) -> str:
    chapters: dict[tuple[str, Headline], list[ComparedRun]] = {}
    for run in runs:
        chapters.setdefault((subject_of(run.config), run.headline), []).append(run)
    charts, sections = Charts(), []
    for (subject, _), members in chapters.items():
        evaluated = all(run.evaluated is not None for run in members)
        groups = _groups(members, evaluated)
        sections.append(tag("h2", subject, class_="chapter") if len(chapters) > 1 else None)
        sections.append(tag("dl", *(_tile(group) for group in groups), class_="tiles"))
        sections.append(section("Learning curves", _curves(charts, groups)))
        sections.append(_finals(charts, groups, evaluated))
        sections.append(_improvement(groups))
    sections.append(_runs(runs, base))
    seeds = {run.config.get("seed") for run in runs}
    algorithms = list(dict.fromkeys(_algorithm(run) for run in runs))
    names = ", ".join(algorithms)
    subjects = ", ".join(dict.fromkeys(subject for subject, _ in chapters))
    title = join(names, tag("i", " on "), subjects)
    facts = [tag("span", count(len(runs), "run")), tag("span", count(len(seeds), "seed"))]
    shown = [part for part in sections if part is not None]
    header = masthead("comparison", title, facts)
    return page(f"{names} on {subjects}", header, shown, {"charts": charts.data})


def _algorithm(run: ComparedRun) -> str:
    return str(run.config.get("algorithm") or "Run").upper()


def _groups(runs: list[ComparedRun], evaluated: bool) -> list[SeedGroup]:
    """Runs by algorithm and by the options that tell them apart."""
    named: dict[str, list[ComparedRun]] = {}
    for run in runs:
        named.setdefault(_group_name(run, runs), []).append(run)
    groups = []
    for color, (name, members) in enumerate(named.items()):
        finals = [run.evaluated if evaluated else run.trained for run in members]
        scores = np.array([final for final in finals if final is not None])
        judged = members[0].headline
        groups.append(
            SeedGroup(
                name=name,
                color=color % 6 + 1,
                runs=members,
                headline=judged.evaluated if evaluated else judged,
                scores=scores,
                summary=aggregate(scores) if len(scores) else None,
            )
        )
    return groups


def _group_name(run: ComparedRun, runs: list[ComparedRun]) -> str:
    peers = [_options(other) for other in runs if _algorithm(other) == _algorithm(run)]
    own = _options(run)
    names = dict.fromkeys(name for options in peers for name in options)
    apart = [n for n in names if n != "seed" and any(p.get(n) != own.get(n) for p in peers)]
    return " ".join([_algorithm(run), *(f"{name}={own.get(name)}" for name in apart)])


def _options(run: ComparedRun) -> dict[str, Any]:
    options = run.config.get("config")
    return options if isinstance(options, dict) else {}


def _tile(group: SeedGroup) -> Html:
    summary = group.summary
    if summary is None:
        missing = "no episode ended" if group.headline.is_return else "nothing was measured"
        return tile(group.name, number(None), missing)
    detail = f"IQM of {_counted(group)}, 95 % interval {_interval(summary)}"
    if not group.has_spread:
        detail = f"{_counted(group)}: no interval"
    return tile(group.name, score(summary.iqm), detail, color=group.color)


def _counted(group: SeedGroup) -> str:
    """Number of scores of a group: of seeds, or of runs where a seed ran more than once."""
    seeds = {str(run.config.get("seed")) for run in group.runs}
    return count(len(group.scores), "seed" if len(seeds) == len(group.runs) else "run")


def _interval(summary: ScoreSummary) -> str:
    low, high = summary.interval
    return f"[{score(low)}, {score(high)}]"


def _curves(charts: Charts, groups: list[SeedGroup]) -> Html:
    series = []
    runs = [run for group in groups for run in group.runs]
    for group in groups:
        known = [run for run in group.runs if len(run.x)]
        if not known:
            continue
        first, last = max(run.x[0] for run in known), min(run.x[-1] for run in known)
        first = min(first, last)
        n_points = min(N_POINTS, int(last - first) + 1)  # not several to a step
        grid = np.linspace(first, last, n_points)
        band = iqm_curve(grid, [np.interp(grid, run.x, run.y) for run in known])
        has_spread = len(known) > 1
        series.append(
            Series(
                name=group.name,
                color=group.color,
                x=np.round(band.x),
                y=band.center,
                low=band.low if has_spread else None,
                high=band.high if has_spread else None,
            )
        )
    headline = runs[0].headline
    hint = curve_of(headline)
    if headline.evaluated == headline:
        known = [run for run in runs if len(run.x)]
        what = {"training" if run.trained is not None else "evaluation" for run in known}
        hint = f"{' or '.join(sorted(what, reverse=True)) or 'training'} {headline.words}"
    if any(one.low is not None for one in series):
        hint = f"interquartile mean of the {hint} over seeds, 95 % bootstrap interval"
    units = " or ".join(sorted({unit_of(run.config) for run in runs}))
    better = "; lower is better" if headline.lower_is_better else ""
    hint = f"{hint}{better}; over {units}"
    return charts.chart(title_of(headline), series, size="large", hint=hint)


def _finals(charts: Charts, groups: list[SeedGroup], evaluated: bool) -> Html | None:
    scored = [group for group in groups if group.summary is not None]
    if not scored:
        return None
    every = np.concatenate([group.scores for group in scored])
    low, high = float(every.min()), float(every.max())
    rows = [_final_row(group, group.summary, low, high) for group in scored if group.summary]
    head = ["", "Seeds", "IQM", "95 % interval", "Mean", "Std", "Median", "Worst", "Best", ""]
    margin = 0.04 * (high - low) or max(abs(high), 1.0) * 0.1
    thresholds = np.linspace(low - margin, high + margin, N_POINTS)
    sign, side = (-1, "below") if scored[0].headline.lower_is_better else (1, "above")
    series = []
    for group in scored:
        if not group.has_spread:
            continue
        band = performance_profile(sign * group.scores, sign * thresholds)
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
    profile: Any = series and charts.chart(
        "Performance profile",
        series,
        size="large medium",
        hint=f"share of seeds whose final score is {side} the threshold, 95 % bootstrap interval",
        x_name=f"score {side}",
        group="scores",
        x=Range(float(thresholds[0]), float(thresholds[-1])),
        y=Range(0.0, 1.04),
    )
    last = f"last {curve_of(scored[0].headline)}"
    of_evaluations = f"mean {scored[0].headline.words} of the last evaluation"
    note = of_evaluations if evaluated else last
    if any(group.has_spread and len(group.scores) < FEW for group in scored):
        note += f"; intervals of fewer than {FEW} seeds are too narrow"
    listed = table(head, rows, class_="numbers finals")
    return section("Final scores", listed, profile or None, note=note)


def _final_row(group: SeedGroup, summary: ScoreSummary, low: float, high: float) -> list[Any]:
    worst, best = summary.minimum, summary.maximum
    if group.headline.lower_is_better:
        worst, best = best, worst
    return [
        tag("span", group.name, class_=f"key c{group.color}"),
        summary.n_runs,
        tag("b", score(summary.iqm)),
        _interval(summary) if group.has_spread else "\N{EN DASH}",
        score(summary.mean),
        score(summary.std) if group.has_spread else "\N{EN DASH}",
        score(summary.median),
        score(worst),
        score(best),
        _strip(group, summary, low, high),
    ]


def _strip(group: SeedGroup, summary: ScoreSummary, low: float, high: float) -> Html:
    """Every seed as a tick, the interval as a bar and the interquartile mean as a dot."""
    width = high - low or 1.0
    *ticks, start, end, middle = (
        f"{6 + 188 * (value - low) / width:.1f}"
        for value in [*group.scores, *summary.interval, summary.iqm]
    )
    return tag(
        "svg",
        tag("path", d=f"M{start} 9H{end}", class_="interval") if group.has_spread else None,
        tag("path", d="".join(f"M{tick} 3V15" for tick in ticks)),
        tag("path", d=f"M{middle} 9h0", class_="middle"),
        class_=f"strip c{group.color}",
        viewBox="0 0 200 18",
        aria_hidden="true",
    )


def _improvement(groups: list[SeedGroup]) -> Html | None:
    """Probability that the algorithm of a row beats that of a column."""
    scored = [group for group in groups if group.has_spread]
    if len(scored) < 2:
        return None
    rows = [
        [
            tag("span", row.name, class_=f"key c{row.color}"),
            *("" if row is column else share(_improves(row, column)) for column in scored),
        ]
        for row in scored
    ]
    head = ["", *(group.name for group in scored)]
    return section(
        "Probability of improvement",
        table(head, rows),
        note="of the row over the column, a seed against a seed",
    )


def _improves(row: SeedGroup, column: SeedGroup) -> float:
    sign = -1 if row.headline.lower_is_better else 1
    return probability_of_improvement(sign * row.scores, sign * column.scores)


def _runs(runs: list[ComparedRun], base: Path) -> Html:
    rows = []
    has_envs = any("env" in run.config or "subject" not in run.config for run in runs)
    has_evaluations = has_envs or any(run.evaluated is not None for run in runs)
    has_success = any(run.success_rate is not None for run in runs)
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
                run.config.get("env", run.config.get("subject")),
                run.config.get("seed"),
                *([score(run.evaluated)] if has_evaluations else []),
                *([share(run.success_rate)] if has_success else []),
                score(run.trained),
                count(run.steps),
                duration(summary.get("wall_seconds")),
                summary.get("status") or "",
            ]
        )
    head = [
        "Run",
        "Algorithm",
        "Environment" if has_envs else "Subject",
        "Seed",
        *(["Evaluated"] if has_evaluations else []),
        *(["Success"] if has_success else []),
        "Trained",
        "Steps",
        "Wall time",
        "Status",
    ]
    return section("Runs", table(head, rows, class_="numbers runs"))
