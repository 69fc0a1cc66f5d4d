"""Statistics over runs, with plain loops."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def iqm(scores: Sequence[float]) -> float:
    """Each score four times, the lowest and highest quarter of the list thrown away, the mean.

    With four copies of each of m scores, a quarter of the list is exactly m entries.
    """
    copies = sorted(score for score in scores for _ in range(4))
    quarter = len(scores)
    middle = [Fraction(score) for score in copies[quarter:-quarter]]
    return float(sum(middle, Fraction(0)) / len(middle))


def fraction_above(scores: Sequence[Sequence[float]], threshold: float) -> float:
    """Mean over tasks of the share of runs above the threshold; scores are [n_runs][n_tasks]."""
    n_runs, n_tasks = len(scores), len(scores[0])
    shares = []
    for task in range(n_tasks):
        above = 0
        for run in range(n_runs):
            if scores[run][task] > threshold:
                above += 1
        shares.append(above / n_runs)
    return sum(shares) / n_tasks


def probability_of_improvement(x: Sequence[Sequence[float]], y: Sequence[Sequence[float]]) -> float:
    """Mean over tasks of the share of pairs that x wins, ties as half; both [n_runs][n_tasks]."""
    n_tasks = len(x[0])
    total = 0.0
    for task in range(n_tasks):
        wins = 0.0
        for run in x:
            for other in y:
                if run[task] > other[task]:
                    wins += 1.0
                elif run[task] == other[task]:
                    wins += 0.5
        total += wins / (len(x) * len(y))
    return total / n_tasks


def optimality_gap(scores: Sequence[Sequence[float]], target: float) -> float:
    """Mean shortfall of the scores from the target; scores are [n_runs][n_tasks]."""
    total, count = 0.0, 0
    for run in scores:
        for score in run:
            total += target - score if score < target else 0.0
            count += 1
    return total / count
