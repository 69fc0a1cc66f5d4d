"""A chart as HTML: curves in an SVG that stretches, labels as text that does not.

The SVG has a fixed coordinate system of 1000 x 1000 and no aspect ratio; strokes do not scale, so
the chart is sharp at every width without a script. The numbers for the tooltip go to the script as
data.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sharpwave.pages.curves import Range, Series, x_range, y_range
from sharpwave.pages.markup import Html, join, tag
from sharpwave.pages.text import compact, number, ticks
from sharpwave.types import Doubles

SMOOTHED = "line: moving average"
"""Said on a chart whose line is not what was logged."""


class Charts:
    """Makes the charts of one page and keeps the numbers that the script needs of them."""

    def __init__(self) -> None:
        self.data: list[dict[str, Any]] = []

    def chart(
        self,
        title: str,
        series: list[Series],
        *,
        size: str = "small",
        hint: str | None = None,
        note: str | None = None,
        x_name: str = "step",
        group: str = "steps",
        x: Range | None = None,
        y: Range | None = None,
    ) -> Html:
        """A figure with the series, or a note when there is none.

        Args:
            title: Title of the chart.
            series: Series to draw, the last on top.
            size: small, large, or large medium.
            hint: A few words on how to read it.
            note: Something to warn of.
            x_name: Name of the x axis, for the tooltip.
            group: Charts of a group show the same x while the pointer is over one of them.
            x: Range of the x axis; fitted when None.
            y: Range of the y axis; fitted when None.
        """
        caption = self._caption(title, series, hint, note, size)
        if not series:
            empty = tag("p", "Nothing was logged.", class_="empty")
            return tag("figure", caption, empty, class_=f"chart {size}")
        across, up = x or x_range(series), y or y_range(series)
        self.data.append(
            {
                "x": [across.low, across.high],
                "y": [up.low, up.high],
                "xName": x_name,
                "series": [_numbers(one) for one in series if one.kind != "faint"],
            }
        )
        large = size.startswith("large")
        x_ticks, x_step = ticks(across.low, across.high, 6 if large else 3)
        y_ticks, y_step = ticks(up.low, up.high, 5 if large else 3)
        plot = tag(
            "div",
            tag("div", *(_label("bottom", up, at, y_step) for at in y_ticks), class_="y axis"),
            tag("div", _drawing(series, across, up, y_ticks), class_="area"),
            tag("div", *(_label("left", across, at, x_step) for at in x_ticks), class_="x axis"),
            class_="plot",
        )
        label = f"{title}: " + ", ".join(
            f"{one.name} ends at {number(float(one.values[-1]))}"
            for one in series
            if one.kind != "faint"
        )
        return tag(
            "figure",
            caption,
            plot,
            class_=f"chart {size}",
            data_chart=len(self.data) - 1,
            data_group=group,
            role="img",
            aria_label=label,
            tabindex=0,
        )

    @staticmethod
    def _caption(
        title: str, series: list[Series], hint: str | None, note: str | None, size: str
    ) -> Html:
        named = [one for one in series if one.kind != "faint"]
        if size.startswith("large"):
            beside: Html | None = tag(
                "span",
                *(tag("span", one.name, class_=f"key c{one.color} {one.kind}") for one in named),
                class_="legend",
            )
        else:
            last = [number(float(one.values[-1])) for one in named[-1:]]
            beside = tag("span", *last, class_="now") if named else None
            if any(one.logged is not None for one in named):
                hint = " · ".join(filter(None, [hint, SMOOTHED]))
        return tag(
            "figcaption",
            tag("span", title, class_="title"),
            beside,
            tag("span", hint, class_="hint") if hint else None,
            tag("span", note, class_="warning") if note else None,
        )


def _label(side: str, axis: Range, at: float, step: float) -> Html:
    share = float(axis.share(np.array(at)))
    return tag("span", compact(at, step), style=f"{side}:{100 * share:.2f}%")


def _numbers(series: Series) -> dict[str, Any]:
    """Numbers of a series that the tooltip shows."""
    numbers: dict[str, Any] = {
        "name": series.name,
        "color": series.color,
        "kind": series.kind,
        "x": _rounded(series.x, 10),
        "y": _rounded(series.y, 5),
    }
    if series.logged is not None:
        numbers["logged"] = _rounded(series.logged, 5)
    if series.low is not None and series.high is not None:
        numbers["low"] = _rounded(series.low, 5)
        numbers["high"] = _rounded(series.high, 5)
    return numbers


def _rounded(values: Doubles, digits: int) -> list[float]:
    rounded = (float(f"{value:.{digits}g}") for value in values)
    return [int(value) if value.is_integer() else value for value in rounded]


def _drawing(series: list[Series], across: Range, up: Range, y_ticks: list[float]) -> Html:
    lines = " ".join(f"M0 {1000 * (1 - up.share(np.array(at))):.1f}H1000" for at in y_ticks)
    shapes = [tag("path", d=lines, class_="grid")]
    for one in series:
        x, y = 1000 * across.share(one.x), 1000 * (1 - up.share(one.y))
        if one.low is not None and one.high is not None:
            low, high = (1000 * (1 - up.share(edge)) for edge in (one.low, one.high))
            band = _bars(x, low, high) if one.kind == "points" else _band(x, low, high)
            shapes.append(tag("path", d=band, class_=f"band {one.kind} c{one.color}"))
        if one.kind == "points":
            shapes.append(tag("path", d=_path(x, y), class_=f"link c{one.color}"))
        if one.kind == "faint":
            y = np.clip(y, 0, 1000)
        path = _dots(x, y) if one.kind == "points" or len(x) == 1 else _path(x, y)
        kind = "points" if len(x) == 1 else one.kind
        shapes.append(tag("path", d=path, class_=f"curve {kind} c{one.color}"))
    return tag(
        "svg", *shapes, viewBox="0 0 1000 1000", preserveAspectRatio="none", aria_hidden="true"
    )


def _points(x: Doubles, y: Doubles) -> list[str]:
    return [f"{a:.1f} {b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True)]


def _path(x: Doubles, y: Doubles) -> str:
    return "M" + "L".join(_points(x, y))


def _dots(x: Doubles, y: Doubles) -> str:
    """Lines of no length: with round caps they are dots that do not stretch."""
    return "".join(f"M{point}h0" for point in _points(x, y))


def _bars(x: Doubles, low: Doubles, high: Doubles) -> str:
    ends = zip(_points(x, low), _points(x, high), strict=True)
    return "".join(f"M{start}L{end}" for start, end in ends)


def _band(x: Doubles, low: Doubles, high: Doubles) -> str:
    return join("M", "L".join(_points(x, low) + _points(x, high)[::-1]), "Z")
