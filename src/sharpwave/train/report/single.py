"""The report of one run."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from sharpwave.files import replace_file
from sharpwave.pages.chart import Charts
from sharpwave.pages.curves import Floats, Series, finite, lost_at, metric, thinned
from sharpwave.pages.markup import Html, join, tag
from sharpwave.pages.page import masthead, page, section, tile
from sharpwave.pages.text import date, duration, number, score
from sharpwave.train.report import tables
from sharpwave.train.run_folder import Evaluation, RunFolder

LARGE, SMALL = 1000, 500
"""Points of a curve at most."""

LARGEST_FILM = 4 << 20
"""Bytes of a film that still goes into the page."""

METRICS = {
    "loss": ("Loss", "all terms together"),
    "policy_loss": ("Policy loss", "what the actor minimises"),
    "value_loss": ("Value loss", "error of the critic"),
    "entropy": ("Entropy", "how random the policy is"),
    "approx_kl": ("KL divergence", "how far updates move the policy"),
    "clip_fraction": ("Clip fraction", "samples beyond the clip range"),
    "explained_variance": ("Explained variance", "1: the critic foresees all"),
    "grad_norm": ("Gradient norm", "before clipping"),
    "learning_rate": ("Learning rate", "as scheduled"),
    "mean_length": ("Episode length", "mean of the last 100 episodes"),
    "sps": ("Steps per second", "all environments together"),
}
"""Title and hint of the metrics whose meaning is known, in the order they are shown."""

NOT_SHOWN = {"step", "timesteps", "updates", "episodes", "mean_reward", "seconds"}
"""Axes and counters, and what the learning curve shows."""


def write_report(run_dir: str | os.PathLike[str]) -> Path:
    """Writes `report.html` into the folder of a run, finished or not.

    The page is complete in itself: curves, tables and facts in one file that fetches nothing.

    Args:
        run_dir: Folder of the run.

    Returns:
        Path of the report.

    Raises:
        FileNotFoundError: There is no run in the folder.
    """
    folder = RunFolder(run_dir)
    if not folder.exists:
        raise FileNotFoundError(f"run_dir must be the folder of a run, got {folder.path}")
    replace_file(folder.report_file, _page(folder))
    return folder.report_file


def _page(folder: RunFolder) -> str:
    config, environment, summary = folder.config, folder.environment, folder.summary
    metrics, evaluations = folder.metrics(), folder.evaluations()
    algorithm = str(config.get("algorithm") or "Run").upper()
    env = str(config.get("env") or "an environment without a name")
    charts = Charts()
    sections = [
        _verdict(summary, metrics, evaluations),
        section("Learning curve", _learning_curve(charts, metrics, evaluations)),
        _film(folder),
        _updates(charts, metrics),
        tables.timings(summary),
        tables.evaluations(evaluations),
        tables.configuration(config),
        tables.facts(environment),
    ]
    header = masthead(
        "training run",
        join(algorithm, tag("i", " on "), env),
        _line(config, environment, summary),
    )
    shown = [part for part in sections if part is not None]
    return page(f"{algorithm} on {env}", header, shown, {"charts": charts.data})


def _line(
    config: dict[str, Any], environment: dict[str, Any], summary: dict[str, Any]
) -> list[Html]:
    """State of the run, seed and date."""
    status, reason = str(summary.get("status") or "running"), summary.get("reason")
    words = {
        "finished": "finished",
        "stopped": f"stopped: {reason}" if reason else "stopped",
        "failed": f"failed: {reason}" if reason else "failed",
    }
    state = words.get(status, "no end on record: still running, or interrupted")
    seed, started = config.get("seed"), environment.get("started")
    known = status if status in words else "running"
    return [
        tag("span", state, class_=f"state {known}"),
        *([tag("span", f"seed {seed}")] if seed is not None else []),
        *([tag("span", date(str(started)))] if started else []),
    ]


def _verdict(
    summary: dict[str, Any], metrics: dict[str, Floats], evaluations: list[Evaluation]
) -> Html:
    """The numbers that matter, in one row."""
    tiles = []
    if evaluations:
        last, best = evaluations[-1], max(evaluations, key=lambda one: one.mean)
        n = f"{len(last.returns)} episodes" if last.returns else None
        tiles.append(tile("Final evaluation", score(last.mean), _spread(last.std, n), color=2))
        tiles.append(tile("Best evaluation", score(best.mean), f"at step {best.step:,}"))
    else:
        returns = metrics.get("mean_reward", np.array([]))
        known = returns[np.isfinite(returns)]
        last_return = float(known[-1]) if len(known) else None
        tiles.append(tile("Training return", score(last_return), "last 100 episodes", color=1))
    steps, wall, updates = (
        total if isinstance(total := summary.get(key), int | float) else _last(metrics, column)
        for key, column in (("timesteps", "step"), ("wall_seconds", "seconds"), ("updates",) * 2)
    )
    detail = None if updates is None else f"{number(updates, 9)} updates"
    tiles.append(tile("Environment steps", number(steps, 9), detail))
    tiles.append(tile("Wall time", duration(wall)))
    if steps and wall:
        tiles.append(tile("Speed", number(steps / wall, 3), "steps per second"))
    return tag("dl", *tiles, class_="tiles")


def _spread(std: float, n: str | None) -> str | None:
    parts = [f"± {score(std)}" if np.isfinite(std) else None, n]
    return " over ".join(part for part in parts if part) or None


def _last(metrics: dict[str, Floats], name: str) -> float | None:
    column = metrics.get(name, np.array([]))
    known = column[np.isfinite(column)]
    return float(known[-1]) if len(known) else None


def _learning_curve(
    charts: Charts, metrics: dict[str, Floats], evaluations: list[Evaluation]
) -> Html:
    """Return while training, and the evaluations with one standard deviation around them."""
    series = []
    if "mean_reward" in metrics:
        x, y = finite(metrics["step"], metrics["mean_reward"])
        kept = thinned(y, LARGE)
        if len(kept):
            series.append(Series(name="training return", color=1, x=x[kept], y=y[kept]))
    if evaluations:
        kept = thinned(np.array([one.mean for one in evaluations]), LARGE)
        shown = [evaluations[i] for i in kept]
        mean, std = (np.array([getattr(one, name) for one in shown]) for name in ("mean", "std"))
        spread = np.where(np.isfinite(std), std, 0.0)
        series.append(
            Series(
                name="evaluation",
                color=2,
                x=np.array([float(one.step) for one in shown]),
                y=mean,
                low=mean - spread,
                high=mean + spread,
                kind="points",
            )
        )
    hint = "training: mean of the last 100 episodes; evaluation: mean and standard deviation"
    return charts.chart("Episode return", series, size="large", hint=hint)


def _film(folder: RunFolder) -> Html | None:
    """The latest film of the policy, inside the page unless it is large."""
    films = sorted(folder.videos.glob("*.mp4"), key=lambda path: path.stat().st_mtime)
    if not films:
        return None
    latest = films[-1]
    if latest.stat().st_size > LARGEST_FILM:
        shown = tag("p", tag("a", latest.name, href=f"{folder.videos.name}/{quote(latest.name)}"))
    else:
        content = base64.b64encode(latest.read_bytes()).decode()
        source = f"data:video/mp4;base64,{content}"
        shown = tag("video", src=source, controls=True, muted=True, loop=True, playsinline=True)
    return section("At play", tag("div", shown, class_="card"), note=latest.name)


def _updates(charts: Charts, metrics: dict[str, Floats]) -> Html | None:
    """Small charts of everything else that was logged."""
    others = sorted(set(metrics) - set(METRICS) - NOT_SHOWN)
    figures = []
    for name in [*(name for name in METRICS if name in metrics), *others]:
        title, hint = METRICS.get(name, (name.replace("_", " ").capitalize(), None))
        column = metrics[name]
        series = metric(title.lower(), 1, metrics["step"], column, SMALL)
        lost = lost_at(metrics["step"], column)
        note = f"not finite since step {lost:,.0f}" if series and lost is not None else None
        if series:
            figures.append(charts.chart(title, series, hint=hint, note=note))
    if not figures:
        return None
    return section("Inside the updates", tag("div", *figures, class_="multiples"))
