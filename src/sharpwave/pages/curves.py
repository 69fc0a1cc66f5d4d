"""Curves as the report draws them: finite, smoothed, thinned out, in a range that fits them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from sharpwave.pages.text import ticks
from sharpwave.types import Doubles

Kind: TypeAlias = Literal["line", "faint", "points"]


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line, or one row of points, of a chart."""

    name: str
    """Name in the legend and the tooltip."""
    color: int
    """Index of its color in the palette."""
    x: Doubles
    """[n] x coordinates, ascending."""
    y: Doubles
    """[n] y coordinates."""
    low: Doubles | None = None
    """[n] lower end of a band or spread around y."""
    high: Doubles | None = None
    """[n] upper end of it."""
    kind: Kind = "line"
    """faint is what a line was smoothed from; points stand alone, with their spread."""
    logged: Doubles | None = None
    """[n] the values themselves, where y is smoothed."""

    @property
    def values(self) -> Doubles:
        """[n] the values as they were logged, however they are drawn."""
        return self.y if self.logged is None else self.logged


@dataclass(frozen=True)
class Range:
    """An interval of an axis."""

    low: float
    high: float

    def share(self, values: Doubles) -> Doubles:
        """Positions of values between low (0) and high (1)."""
        return (values - self.low) / (self.high - self.low)


def finite(x: Doubles, y: Doubles) -> tuple[Doubles, Doubles]:
    """The points whose value is a finite number."""
    kept = np.isfinite(y)
    return x[kept], y[kept]


def lost_at(x: Doubles, y: Doubles) -> float | None:
    """The step from which on a curve that had numbers has none, None while it has.

    NaN is what was not logged, inf what was not finite.
    """
    logged = ~np.isnan(y)
    x, y = x[logged], y[logged]
    kept = np.flatnonzero(np.isfinite(y))
    if not len(kept) or kept[-1] == len(y) - 1:
        return None
    return float(x[kept[-1] + 1])


def smoothed(y: Doubles) -> Doubles:
    """Exponential moving average over about a fiftieth of the curve, without a bias at its start.

        m_t = Σ_k d^k y_(t-k) / Σ_k d^k,  d = 1 - 2 / (n / 50 + 1)

    Example:
        >>> smoothed(np.array([1.0, 3.0])).tolist()
        [1.0, 3.0]
    """
    span = len(y) / 50
    if span <= 1:
        return y
    decay = 1.0 - 2.0 / (span + 1.0)
    result = np.empty_like(y)
    total = weight = 0.0
    for i, value in enumerate(y.tolist()):
        total = decay * total + value
        weight = decay * weight + 1.0
        result[i] = total / weight
    return result


def thinned(y: Doubles, limit: int) -> npt.NDArray[np.intp]:
    """Indices of at most `limit` points that keep the shape: ends, and extremes of each stretch.

    Example:
        >>> thinned(np.array([0.0, 9.0, 0.0, 0.0, -9.0, 0.0, 0.0]), 6).tolist()
        [0, 1, 4, 5, 6]
    """
    if len(y) <= limit:
        return np.arange(len(y))
    kept = {0, len(y) - 1}
    for stretch in np.array_split(np.arange(len(y)), max((limit - 2) // 2, 1)):
        kept.add(int(stretch[np.argmin(y[stretch])]))
        kept.add(int(stretch[np.argmax(y[stretch])]))
    return np.array(sorted(kept))


def metric(
    name: str, color: int, x: Doubles, y: Doubles, limit: int, *, smooth: bool = True
) -> list[Series]:
    """A metric as it was logged, faint, below a smoothed line; nothing without a finite value."""
    x, y = finite(x, y)
    if not len(y):
        return []
    line_y, kept = smoothed(y) if smooth else y, thinned(y, limit)
    if line_y is y:
        return [Series(name=name, color=color, x=x[kept], y=y[kept])]
    line = Series(name=name, color=color, x=x[kept], y=line_y[kept], logged=y[kept])
    raw = Series(name="as logged", color=color, x=x[kept], y=y[kept], kind="faint")
    return [raw, line]


def x_range(series: list[Series]) -> Range:
    """From 0, or the first step if that is far from it, to the last step or just beyond it."""
    first = min(float(one.x[0]) for one in series)
    last = max(float(one.x[-1]) for one in series)
    low = first if first < 0 or first > last / 2 else 0.0
    if last <= low:
        return Range(low, low + 1.0)
    step = ticks(low, last, 6)[1]
    rounded = math.ceil(last / step) * step
    return Range(low, rounded if rounded - last <= 0.02 * (last - low) else last)


def y_range(series: list[Series]) -> Range:
    """Range that shows every line and point, and all but the wildest hundredth of logged values."""
    low, high = np.inf, -np.inf
    for one in series:
        if one.kind == "faint":
            ends = np.percentile(one.y, [1, 99])
        else:
            parts = [one.y, *(edge for edge in (one.low, one.high) if edge is not None)]
            ends = np.concatenate(parts)
        low, high = min(low, float(ends.min())), max(high, float(ends.max()))
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        middle, half = (low + high) / 2, max(abs(low), abs(high)) / 2 or 0.5
        return Range(middle - half, middle + half)
    margin = 0.06 * (high - low)
    # A curve that never goes below zero gets an axis that does not either.
    return Range(low - margin if low < 0 or low > margin else 0.0, high + margin)
