"""Statistics over runs: robust means, confidence intervals, probability of improvement.

The measures follow Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical
Precipice" (2021). Scores are one number per run, `[n_runs]`, or per run and task,
`[n_runs, n_tasks]`; scores of several tasks must be on one scale (normalized) to be pooled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sharpwave.types import Doubles

__all__ = [
    "Band",
    "ScoreSummary",
    "aggregate",
    "bootstrap_interval",
    "iqm",
    "iqm_curve",
    "optimality_gap",
    "performance_profile",
    "probability_of_improvement",
]


class Band(NamedTuple):
    """A curve and the bootstrap interval around each of its points, `[n_points]` each."""

    x: Doubles
    center: Doubles
    low: Doubles
    high: Doubles


@dataclass(frozen=True, kw_only=True)
class ScoreSummary:
    """All scores in a few numbers; `aggregate` makes it."""

    n_runs: int
    """Runs per task."""
    n_tasks: int
    """Tasks."""
    mean: float
    """Mean of all scores."""
    std: float
    """Population standard deviation of all scores."""
    median: float
    """Median of all scores."""
    iqm: float
    """Interquartile mean of all scores."""
    interval: tuple[float, float]
    """Bootstrap interval of the interquartile mean."""
    confidence: float
    """Confidence of the interval."""
    minimum: float
    """The worst score."""
    maximum: float
    """The best score."""


def iqm(scores: npt.ArrayLike) -> float:
    """Interquartile mean: the mean of the middle half of all scores.

    With the m sorted scores as a step function Q on [0, 1], each score 1/m wide,

        iqm = 2 ∫ Q(u) du,  u from 1/4 to 3/4,

    so a score that a quartile cuts counts with the part that lies inside. Where 4 divides m this
    is the mean of the m/2 middle scores; up to m = 2 it is the mean.

    Args:
        scores: [n_runs] or [n_runs, n_tasks], pooled.

    Raises:
        ValueError: scores is empty, has other axes, or is not finite.

    Example:
        >>> iqm([1.0, 2.0, 3.0, 1000.0])
        2.5
        >>> iqm([0.0, 1.0, 2.0, 3.0, 1000.0])
        2.0
    """
    return float(_middle_mean(_scores(scores).reshape(-1)))


def bootstrap_interval(
    scores: npt.ArrayLike,
    statistic: Callable[[Doubles], float] = iqm,
    confidence: float = 0.95,
    n_resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile bootstrap interval of a statistic, stratified over tasks.

    Each resample draws n_runs runs with replacement for every task on its own. The interval is
    the middle `confidence` of the statistics of the resamples. It is a point for a single run, and
    too narrow for very few.

    Args:
        scores: [n_runs] or [n_runs, n_tasks].
        statistic: Function of scores, as an array [n_runs, n_tasks].
        confidence: Between 0 and 1.
        n_resamples: Number of bootstrap resamples.
        seed: Of the resampling.

    Raises:
        ValueError: scores is empty, has other axes or is not finite, confidence is not between 0
            and 1, or n_resamples is not positive.

    Example:
        >>> low, high = bootstrap_interval([480.0, 500.0, 495.0, 470.0, 500.0])
        >>> 470 <= low < iqm([480.0, 500.0, 495.0, 470.0, 500.0]) < high <= 500
        True
    """
    low, high = _bootstrap(_scores(scores), statistic, confidence, n_resamples, seed)
    return float(low), float(high)


def performance_profile(
    scores: npt.ArrayLike,
    thresholds: npt.ArrayLike,
    confidence: float = 0.95,
    n_resamples: int = 2000,
    seed: int = 0,
) -> Band:
    """Fraction of runs that score above each threshold, averaged over tasks.

        F(t) = (1 / n_tasks) Σ_task (1 / n_runs) Σ_run [score > t]

    Args:
        scores: [n_runs] or [n_runs, n_tasks].
        thresholds: [n_points].
        confidence: Of the pointwise band, between 0 and 1.
        n_resamples: Resamples of the band, drawn as in `bootstrap_interval`.
        seed: Of the resampling.

    Returns:
        x: the thresholds; center: the fractions; low, high: their band.

    Raises:
        ValueError: As `bootstrap_interval`, or thresholds is not a finite vector.

    Example:
        >>> performance_profile([1.0, 2.0, 3.0, 4.0], [0.0, 2.0, 4.0]).center.tolist()
        [1.0, 0.5, 0.0]
    """
    table = _scores(scores)
    points = _vector("thresholds", thresholds)

    def fractions(sample: Doubles) -> Doubles:
        ordered = np.sort(sample, axis=None)
        return 1.0 - np.searchsorted(ordered, points, side="right") / ordered.size

    low, high = _bootstrap(table, fractions, confidence, n_resamples, seed)
    return Band(points, fractions(table), low, high)


def iqm_curve(
    x: npt.ArrayLike,
    curves: npt.ArrayLike,
    confidence: float = 0.95,
    n_resamples: int = 2000,
    seed: int = 0,
) -> Band:
    """Interquartile mean of several curves at every point, with its bootstrap band.

    A resample draws whole curves, so the points of its band belong together.

    Args:
        x: [n_points] where the curves were read.
        curves: [n_runs, n_points].
        confidence: Of the pointwise band, between 0 and 1.
        n_resamples: Resamples of the band.
        seed: Of the resampling.

    Raises:
        ValueError: The shapes do not fit, something is not finite, or as `bootstrap_interval`.

    Example:
        >>> band = iqm_curve([0, 1], [[0.0, 1.0], [2.0, 1.0]])
        >>> band.center.tolist(), band.high.tolist()
        ([1.0, 1.0], [2.0, 1.0])
    """
    points = _vector("x", x)
    table = np.asarray(curves, np.float64)
    if table.ndim != 2 or not len(table) or table.shape[1] != len(points):
        raise ValueError(
            f"curves must have shape (n_runs, {len(points)}) like x, got {table.shape}"
        )
    if not np.isfinite(table).all():
        raise ValueError("curves must be finite")

    def middle(sample: Doubles) -> Doubles:
        return np.asarray(_middle_mean(sample[:, 0]))

    low, high = _bootstrap(table[:, None], middle, confidence, n_resamples, seed)
    return Band(points, middle(table[:, None]), low, high)


def probability_of_improvement(x: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Probability that a run of x scores above a run of y on the same task.

        P(X > Y) = mean over tasks and pairs of [x > y] + 1/2 [x = y]

    Args:
        x: [n_runs] or [n_runs, n_tasks].
        y: [m_runs] or [m_runs, n_tasks].

    Raises:
        ValueError: The numbers of tasks differ, or something is empty or not finite.

    Example:
        >>> probability_of_improvement([2.0, 3.0], [1.0, 2.0])
        0.875
    """
    first, second = _scores(x, "x"), _scores(y, "y")
    if first.shape[1] != second.shape[1]:
        raise ValueError(f"y must have {first.shape[1]} tasks like x, got {second.shape[1]}")
    difference = np.sign(first[:, None] - second[None])
    return float(0.5 + 0.5 * difference.mean())


def optimality_gap(scores: npt.ArrayLike, target: float = 1.0) -> float:
    """Optimality gap: how much scores miss the target on average, without credit for passing it.

        gap = mean of max(target - score, 0)

    Args:
        scores: [n_runs] or [n_runs, n_tasks].
        target: The score that is good enough.

    Raises:
        ValueError: scores is empty, has other axes, or is not finite.

    Example:
        >>> optimality_gap([0.5, 1.5], target=1.0)
        0.25
    """
    return float(np.maximum(target - _scores(scores), 0.0).mean())


def aggregate(
    scores: npt.ArrayLike, confidence: float = 0.95, n_resamples: int = 2000, seed: int = 0
) -> ScoreSummary:
    """Mean, median, interquartile mean with its interval, and extremes of all scores.

    Args:
        scores: [n_runs] or [n_runs, n_tasks], pooled.
        confidence: Of the interval, between 0 and 1.
        n_resamples: Resamples of the interval.
        seed: Of the resampling.

    Raises:
        ValueError: As `bootstrap_interval`.

    Example:
        >>> summary = aggregate([480.0, 500.0, 495.0, 470.0, 500.0])
        >>> summary.median, summary.maximum
        (495.0, 500.0)
    """
    table = _scores(scores)
    return ScoreSummary(
        n_runs=table.shape[0],
        n_tasks=table.shape[1],
        mean=float(table.mean()),
        std=float(table.std()),
        median=float(np.median(table)),
        iqm=iqm(table),
        interval=bootstrap_interval(table, iqm, confidence, n_resamples, seed),
        confidence=confidence,
        minimum=float(table.min()),
        maximum=float(table.max()),
    )


def _middle_mean(values: Doubles) -> Any:
    """Interquartile mean along the first axis."""
    m = len(values)
    edges = np.clip(np.arange(m + 1) / m, 0.25, 0.75)
    return 2.0 * np.tensordot(np.diff(edges), np.sort(values, axis=0), axes=1)


def _bootstrap(
    table: Doubles,
    statistic: Callable[[Doubles], Any],
    confidence: float,
    n_resamples: int,
    seed: int,
) -> tuple[Doubles, Doubles]:
    """Percentile bounds of a statistic, a number or an array, over resamples of the runs."""
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}")
    if n_resamples < 1:
        raise ValueError(f"n_resamples must be at least 1, got {n_resamples}")
    results = np.array([statistic(sample) for sample in _resamples(table, n_resamples, seed)])
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(results, [tail, 1.0 - tail], axis=0)
    return low, high


def _resamples(table: Doubles, n_resamples: int, seed: int) -> Iterator[Doubles]:
    """Tables of the same shape whose columns are drawn from the runs of that column."""
    rng = np.random.default_rng(seed)
    n_runs, n_tasks = table.shape[:2]
    tasks = np.arange(n_tasks)
    for _ in range(n_resamples):
        yield table[rng.integers(n_runs, size=(n_runs, n_tasks)), tasks]


def _scores(scores: npt.ArrayLike, name: str = "scores") -> Doubles:
    """Scores as a finite table [n_runs, n_tasks]."""
    table = np.asarray(scores, np.float64)
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2 or not table.size:
        raise ValueError(
            f"{name} must have shape (n_runs,) or (n_runs, n_tasks) with at least one score, "
            f"got {np.shape(scores)}"
        )
    if not np.isfinite(table).all():
        raise ValueError(f"{name} must be finite")
    return table


def _vector(name: str, values: npt.ArrayLike) -> Doubles:
    vector = np.asarray(values, np.float64)
    if vector.ndim != 1 or not vector.size or not np.isfinite(vector).all():
        raise ValueError(f"{name} must be a vector of finite numbers, got shape {vector.shape}")
    return vector
