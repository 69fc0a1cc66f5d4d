"""Numbers about numbers: what a column holds, gathered block by block, and how values spread."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sharpwave.pages.text import ticks
from sharpwave.types import Array

N_BINS = 24
"""Bars of a histogram, about."""


@dataclass
class Tally:
    """Running summary of the values of a column.

    Attributes:
        rows: Values that were read.
        count: Finite numbers in them.
        nan: Numbers that are not a number.
        infinite: Infinite ones.
        low: The least finite number.
        high: The greatest.
        total: The sum of the finite ones.
    """

    rows: int = 0
    count: int = 0
    nan: int = 0
    infinite: int = 0
    low: float = np.inf
    high: float = -np.inf
    total: float = field(default=0.0)

    def add(self, values: Array) -> None:
        """Take in values [n, ...].

        Example:
            >>> tally = Tally()
            >>> tally.add(np.array([1.0, np.nan, 3.0]))
            >>> tally.low, tally.high, tally.mean, tally.nan
            (1.0, 3.0, 2.0, 1)
        """
        self.rows += len(values)
        if not values.size:
            return
        if values.dtype.kind == "f":
            finite = np.isfinite(values)
            known = int(np.count_nonzero(finite))
            if known < values.size:
                lost = int(np.count_nonzero(np.isnan(values)))
                self.nan += lost
                self.infinite += values.size - known - lost
                values = values[finite]
                if not known:
                    return
        self.count += values.size
        self.low = min(self.low, float(values.min()))
        self.high = max(self.high, float(values.max()))
        self.total += float(values.sum(dtype=np.float64))

    @property
    def mean(self) -> float | None:
        """The mean of the finite numbers, None without any."""
        return self.total / self.count if self.count else None

    def to_json(self) -> dict[str, Any]:
        """The values in a form that JSON can hold."""
        known = self.count > 0
        return {
            "rows_read": self.rows,
            "low": self.low if known else None,
            "high": self.high if known else None,
            "mean": self.mean,
            "nan": self.nan,
            "infinite": self.infinite,
        }


def spread(values: Array, *, whole: bool = False) -> dict[str, Any] | None:
    """Mean, standard deviation, quartiles, extremes and histogram of values [n], None of none.

    Args:
        values: Numbers; those that are not finite are left out.
        whole: They are integers, so that no bar is narrower than 1.

    Example:
        >>> found = spread(np.array([1.0, 2.0, 3.0]))
        >>> found["mean"], found["low"], found["median"], found["high"]
        (2.0, 1.0, 2.0, 3.0)
    """
    values = values[np.isfinite(values)].astype(np.float64)
    if not len(values):
        return None
    low, quarter, median, three_quarters, high = np.percentile(values, [0, 25, 50, 75, 100])
    edges = _edges(float(low), float(high), whole=whole)
    # Round ends may miss an extreme by a rounding error.
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
    return {
        "count": len(values),
        "mean": float(values.mean()),
        "std": float(values.std()),
        "low": float(low),
        "lower_quartile": float(quarter),
        "median": float(median),
        "upper_quartile": float(three_quarters),
        "high": float(high),
        "edges": edges.tolist(),
        "counts": counts.tolist(),
    }


def _edges(low: float, high: float, *, whole: bool) -> Array:
    """Round ends of bars that hold all of [low, high], the last of them beyond `high`."""
    width = high - low
    if width <= 1e-9 * max(abs(low), abs(high)):
        step = 1.0 if whole or not low else 0.1 * 10.0 ** np.floor(np.log10(abs(low)))
        return low + step * (np.arange(4) - 1.5 if not whole else np.arange(4) - 1.0)
    step = ticks(low, high, N_BINS)[1]
    if whole:
        step = max(1.0, np.ceil(step))
    first = np.floor(low / step + 1e-9)
    # A bar holds its lower end only, so that a value at a round number is in the bar right of it.
    last = np.floor(high / step + 1e-9) + 1
    return np.arange(first, last + 1) * step
