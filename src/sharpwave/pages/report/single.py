"""The report of one run."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from sharpwave.pages.chart import Charts
from sharpwave.pages.curves import Series, finite, lost_at, metric, thinned
from sharpwave.pages.headline import Headline
from sharpwave.pages.markup import Html, join, tag
from sharpwave.pages.page import CHARTS, SAMPLES, masthead, page, section, tile
from sharpwave.pages.report import tables
from sharpwave.pages.report.agents import agents_section, is_of_an_agent
from sharpwave.pages.report.dreams import SHOWN, dreams_section
from sharpwave.pages.report.episodes import episodes_section
from sharpwave.pages.report.samples import samples_section
from sharpwave.pages.report.told import (
    curve_of,
    has_headline,
    headline_of,
    subject_of,
    title_of,
    unit_of,
)
from sharpwave.pages.text import count, date, duration, is_number, number, score, share
from sharpwave.pages.units import GRADIENT_STEPS, UPDATES, short, singular
from sharpwave.storage.files import replace_file
from sharpwave.storage.run_folder import Evaluation, RunFolder
from sharpwave.types import Doubles

WINDOW = 100
"""Episodes that training returns are means of."""

LARGE, SMALL = 1000, 500
"""Points of a curve at most."""

LARGEST_FILM = 4 << 20
"""Bytes of a film that still goes into the page."""

METRICS: dict[str, tuple[str, str | None]] = {
    "loss": ("Loss", "all terms together"),
    "policy_loss": ("Policy loss", "of the actor"),
    "value_loss": ("Value loss", "of the critic"),
    "actor_loss": ("Actor loss", None),
    "critic_loss": ("Critic loss", None),
    "reconstruction_loss": ("Reconstruction loss", "of observations, by the world model"),
    "reward_loss": ("Reward loss", "of the world model"),
    "continue_loss": ("Continue loss", "of the ends of episodes, by the world model"),
    "representation_loss": ("Representation loss", "divergence that trains the posterior"),
    "replay_value_loss": ("Value loss on replay", "of the critic"),
    "return_scale": ("Return scale", "what advantages are divided by"),
    "q_value": ("Q-value", "mean over batches"),
    "td_error": ("TD error", "mean magnitude"),
    "reward": ("Reward of an update", "mean of its completions"),
    "reward_std": ("Spread of rewards", "standard deviation of an update"),
    "groups_without_spread": ("Groups without spread", "prompts that teach nothing"),
    "unscored_fraction": ("Unscored", "completions without a reward"),
    "accuracy": ("Accuracy of an update", "pairs whose chosen completion has the higher reward"),
    "reward_margin": ("Margin", "reward of the chosen less that of the rejected completion"),
    "chosen_reward": ("Reward, chosen", "β times the log-ratio to the reference"),
    "rejected_reward": ("Reward, rejected", "β times the log-ratio to the reference"),
    "log_prob": ("Log-probability", "of a token, mean"),
    "log_prob_chosen": ("Log-probability, chosen", "of completions, mean"),
    "log_prob_rejected": ("Log-probability, rejected", "of completions, mean"),
    "dropped_fraction": ("Dropped pairs", "share that says nothing"),
    "completion_length": ("Completion length", "mean tokens"),
    "cut_fraction": ("Cut completions", "share that reached max_new_tokens"),
    "kl": ("KL divergence", "from the reference, per token"),
    "ratio": ("Ratio", "new over old policy, mean of tokens"),
    "sampler_mismatch": ("Sampler mismatch", "of log-probabilities with the learner's, mean"),
    "sampler_mismatch_max": ("Sampler mismatch, largest", "of log-probabilities"),
    "skipped_updates": ("Skipped updates", "no group had a spread, so far"),
    "entropy": ("Entropy", "of the policy"),
    "alpha": ("Temperature", "entropy coefficient α"),
    "alpha_loss": ("Temperature loss", None),
    "approx_kl": ("KL divergence", "of an update"),
    "clip_fraction": ("Clip fraction", "of the samples"),
    "clip_fraction_low": ("Clip fraction, low", "ratios below their bound"),
    "clip_fraction_high": ("Clip fraction, high", "ratios above their bound"),
    "explained_variance": ("Explained variance", "of the critic"),
    "grad_norm": ("Gradient norm", "before clipping"),
    "lag": ("Lag", "updates that the weights of actors had missed"),
    "lag_p95": ("Lag, 95 %", "of the last 100 unrolls had at most this"),
    "lag_max": ("Largest lag", "updates"),
    "dropped_unrolls": ("Dropped unrolls", "too old to learn from"),
    "lost_unrolls": ("Lost unrolls", "with an actor that failed"),
    "actors_alive": ("Actors", "at work"),
    "restarts": ("Restarts", "of actors that failed"),
    "bytes_per_s": ("Bytes per second", "of unrolls"),
    "learner_idle": ("Idle learner", "share of the time"),
    "learning_rate": ("Learning rate", "as scheduled"),
    "success_rate": ("Success rate", "of the last 100 episodes"),
    "mean_length": ("Episode length", "mean of the last 100 episodes"),
    "sps": ("Steps per second", "over the run so far"),
}
"""Title and hint of the metrics whose meaning is known, in the order they are shown."""

NOT_SHOWN = {
    "step",
    "timesteps",
    "updates",
    "gradient_steps",
    "episodes",
    "seconds",
}
"""Axes and counters."""

EXACT = {"learning_rate", "success_rate", "mean_length", "sps"}
"""Metrics drawn without smoothing: schedules, and those that are averages already."""


def write_report(run_dir: str | os.PathLike[str]) -> Path:
    """Writes `report.html` into the folder of a run, finished or not.

    The page is complete in itself: curves, tables and facts in one file that fetches nothing.

    Args:
        run_dir: Folder of the run.

    Returns:
        Path of the report.

    Raises:
        FileExistsError: The folder is none of a run, and has a `report.html` of its own.
        FileNotFoundError: There is no run in the folder.
    """
    folder = RunFolder(run_dir)
    if not folder.exists:
        raise FileNotFoundError(f"run_dir must be the folder of a run, got {folder.path}")
    if folder.report_file.exists() and not folder.is_ours:
        raise FileExistsError(
            f"{folder.report_file} is there, and {folder.config_file} does not say that this is "
            "the folder of a run: nothing was written"
        )
    replace_file(folder.report_file, _page(folder))
    return folder.report_file


def _page(folder: RunFolder) -> str:
    config, environment, summary = folder.config, folder.environment, folder.summary
    metrics, evaluations = folder.metrics(), folder.evaluations()
    algorithm = str(config.get("algorithm") or "Run").upper()
    env = subject_of(config)
    charts = Charts()
    written, embedded = samples_section(folder.samples(), unit_of(config))
    dreams = dreams_section(
        charts, config, unit_of(config), headline_of(config), metrics, folder.dreams()
    )
    sections = [
        _verdict(config, summary, metrics, evaluations),
        _failure(summary),
        _learning_curve(charts, config, metrics, evaluations),
        episodes_section(charts, folder.episodes(), unit_of(config)),
        agents_section(charts, unit_of(config), headline_of(config), metrics, evaluations),
        _film(folder),
        written,
        dreams,
        _updates(charts, metrics, headline_of(config), SHOWN if dreams else ()),
        tables.timings(summary),
        tables.evaluations(evaluations, headline_of(config).each),
        tables.configuration(config),
        tables.facts(environment),
    ]
    header = masthead(
        "training run",
        join(algorithm, tag("i", " on "), env),
        _line(config, environment, summary),
    )
    shown = [part for part in sections if part is not None]
    data = {"charts": charts.data, **embedded}
    scripts = [CHARTS, SAMPLES] if written else [CHARTS]
    return page(f"{algorithm} on {env}", header, shown, data, scripts=scripts)


def _line(
    config: dict[str, Any], environment: dict[str, Any], summary: dict[str, Any]
) -> list[Html]:
    """State of the run, seed, date and model."""
    status, reason = str(summary.get("status") or "running"), _first_line(summary.get("reason"))
    words = {
        "finished": "finished",
        "stopped": f"stopped: {reason}" if reason else "stopped",
        "failed": f"failed: {reason}" if reason else "failed",
    }
    state = words.get(status, "no end on record: still running, or interrupted")
    seed, started = config.get("seed"), environment.get("started")
    model = config.get("model")  # of language runs
    known = status if status in words else "running"
    return [
        tag("span", state, class_=f"state {known}"),
        *([tag("span", f"seed {seed}")] if seed is not None else []),
        *([tag("span", date(str(started)))] if started else []),
        *([tag("span", str(model))] if model else []),
    ]


def _verdict(
    config: dict[str, Any],
    summary: dict[str, Any],
    metrics: dict[str, Doubles],
    evaluations: list[Evaluation],
) -> Html:
    """The numbers that matter, in one row."""
    unit, headline = unit_of(config), headline_of(config)
    tiles = []
    if evaluations:
        last, best = evaluations[-1], max(evaluations, key=lambda one: (one.mean, one.step))
        n = count(len(last.returns), headline.each) if last.returns else None
        tiles.append(tile("Final evaluation", score(last.mean), _spread(last.std, n), color=2))
        tiles.append(tile("Best evaluation", score(best.mean), f"at step {count(best.step)}"))
    if has_headline(config) and not (evaluations and headline.is_return):
        tiles.append(_judged(headline, metrics))
    tiles += _success(metrics, evaluations)
    steps, wall, updates = (
        _furthest(summary.get(key), _last(metrics, column))
        for key, column in (("timesteps", "step"), ("wall_seconds", "seconds"), ("updates",) * 2)
    )
    tiles.append(tile(unit.capitalize(), count(steps), _learned(unit, metrics, updates)))
    tiles.append(tile("Wall time", duration(wall)))
    if steps and wall:
        tiles.append(tile("Speed", number(steps / wall, 3), f"{short(unit)} per second"))
    return tag("dl", *tiles, class_="tiles")


def _judged(headline: Headline, metrics: dict[str, Doubles]) -> Html:
    """The metric that the run is judged by, as training measured it."""
    last = _last(metrics, headline.metric)
    if headline.is_return:
        detail: str | None = f"mean of the last {count(_averaged(metrics), 'episode')}"
        missing = "no episode ended"
    else:
        detail, missing = _best(headline, metrics), "nothing was measured"
    known = detail if last is not None else missing
    return tile(curve_of(headline).capitalize(), score(last), known, color=1)


def _best(headline: Headline, metrics: dict[str, Doubles]) -> str | None:
    """The best value of a metric, and where it was."""
    x, y = finite(metrics.get("step", np.array([])), metrics.get(headline.metric, np.array([])))
    if not len(y):
        return None
    at = int(y.argmin() if headline.lower_is_better else y.argmax())
    return f"best {score(float(y[at]))} at step {count(x[at])}"


def _success(metrics: dict[str, Doubles], evaluations: list[Evaluation]) -> list[Html]:
    """Success rate of the last evaluation, or of the episodes in training."""
    rate, whose = _last(metrics, "success_rate"), "training episodes"
    if evaluations:
        rate, whose = evaluations[-1].success_rate, "the final evaluation"
    return [] if rate is None else [tile("Success rate", share(rate), f"of {whose}")]


def _learned(unit: str, metrics: dict[str, Doubles], updates: float | None) -> str | None:
    """Number of gradient steps or updates, unless the steps of the run are these."""
    if unit in (GRADIENT_STEPS, UPDATES):
        return None
    gradient_steps = _last(metrics, "gradient_steps")
    if gradient_steps is not None:
        return count(gradient_steps, "gradient step")
    return count(updates, "update") if updates is not None else None


def _averaged(metrics: dict[str, Doubles]) -> float:
    """Episodes that the last training return is the mean of."""
    ended = _last(metrics, "episodes")
    return WINDOW if ended is None else min(ended, WINDOW)


def _furthest(summarized: Any, logged: float | None) -> float | None:
    """Number of steps of a run: its summary may be older than its metrics after a crash."""
    known = [float(value) for value in (summarized, logged) if is_number(value)]
    return max(known, default=None)


def _failure(summary: dict[str, Any]) -> Html | None:
    """Why the run failed, where that takes more than a line."""
    reason = str(summary.get("reason") or "")
    if summary.get("status") != "failed" or reason == _first_line(reason):
        return None
    return section("What went wrong", tag("pre", reason))


def _first_line(reason: Any) -> str | None:
    """As much of a reason as fits under a title."""
    lines = [line.strip() for line in str(reason or "").splitlines() if line.strip()]
    if not lines:
        return None
    return lines[0] if len(lines[0]) <= 160 else f"{lines[0][:159]}\N{HORIZONTAL ELLIPSIS}"


def _spread(std: float, n: str | None) -> str | None:
    parts = [f"± {score(std)}" if np.isfinite(std) else None, n]
    return " over ".join(part for part in parts if part) or None


def _last(metrics: dict[str, Doubles], name: str) -> float | None:
    column = metrics.get(name, np.array([]))
    known = column[np.isfinite(column)]
    return float(known[-1]) if len(known) else None


def _learning_curve(
    charts: Charts,
    config: dict[str, Any],
    metrics: dict[str, Doubles],
    evaluations: list[Evaluation],
) -> Html | None:
    """Curve of the headline metric, and of evaluations with one standard deviation around them."""
    headline, unit = headline_of(config), unit_of(config)
    trained, hint = _trained(headline, metrics)
    evaluated = _evaluated(evaluations)
    of_evaluations = "evaluation: mean and standard deviation" if evaluated else None
    if not trained and not evaluated and not has_headline(config):
        return None  # nothing is measured in training, and nobody evaluated
    if headline.evaluated == headline:
        drawn = [(headline, trained + evaluated, [hint, of_evaluations])]
    else:
        drawn = [(headline, trained, [hint])]
        drawn += [(headline.evaluated, evaluated, [of_evaluations])] if evaluated else []
    figures = [
        charts.chart(
            title_of(judged),
            series,
            size="large",
            hint="; ".join([*filter(None, hints), f"over {unit}"]),
            x_name=singular(unit),
        )
        for judged, series, hints in drawn
    ]
    return section("Learning curve", *figures)


def _trained(headline: Headline, metrics: dict[str, Doubles]) -> tuple[list[Series], str | None]:
    """The curve of training, and how to read it."""
    if headline.metric not in metrics:
        return [], None
    x, y = finite(metrics["step"], metrics[headline.metric])
    kept = thinned(y, LARGE)
    if not len(kept):
        return [], None
    hints = [headline.hint, "lower is better" if headline.lower_is_better else None]
    hint = "; ".join(filter(None, hints)) or None
    if headline.is_return:
        hint = f"training: mean of the last {WINDOW} episodes"
    return [Series(name=curve_of(headline), color=1, x=x[kept], y=y[kept])], hint


def _evaluated(evaluations: list[Evaluation]) -> list[Series]:
    """The evaluations as points."""
    if not evaluations:
        return []
    kept = thinned(np.array([one.mean for one in evaluations]), LARGE)
    shown = [evaluations[i] for i in kept]
    mean, std = (np.array([getattr(one, name) for one in shown]) for name in ("mean", "std"))
    spread = np.where(np.isfinite(std), std, 0.0)
    return [
        Series(
            name="evaluation",
            color=2,
            x=np.array([float(one.step) for one in shown]),
            y=mean,
            low=mean - spread,
            high=mean + spread,
            kind="points",
        )
    ]


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


def _title(name: str) -> tuple[str, str | None]:
    """Title and hint of a metric, or of the same of one group of agents."""
    known, _, group = name.partition("/")
    if known not in METRICS:
        return name.replace("_", " ").capitalize(), None
    title, hint = METRICS[known]
    return (f"{title}, {group}" if group else title), hint


def _updates(
    charts: Charts, metrics: dict[str, Doubles], headline: Headline, shown: tuple[str, ...]
) -> Html | None:
    """Small charts of everything else that was logged."""
    others = sorted(set(metrics) - set(METRICS) - NOT_SHOWN)
    figures = []
    for name in [*(name for name in METRICS if name in metrics), *others]:
        if name in (headline.metric, *shown) or is_of_an_agent(name, headline):
            continue  # which the curves above show
        title, hint = _title(name)
        column = metrics[name]
        smooth = name not in EXACT
        series = metric(title.lower(), 1, metrics["step"], column, SMALL, smooth=smooth)
        lost = lost_at(metrics["step"], column)
        note = f"not finite since step {lost:,.0f}" if series and lost is not None else None
        if series:
            figures.append(charts.chart(title, series, hint=hint, note=note))
    if not figures:
        return None
    return section("Inside the updates", tag("div", *figures, class_="multiples"))
