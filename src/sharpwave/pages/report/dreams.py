"""The part of a report on what a world model predicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from sharpwave.pages.chart import Charts
from sharpwave.pages.curves import Series, finite, metric
from sharpwave.pages.headline import Headline
from sharpwave.pages.markup import Html, tag
from sharpwave.pages.page import section, tile
from sharpwave.pages.text import count, is_number, number, score, size
from sharpwave.pages.units import singular
from sharpwave.types import Doubles

__all__ = ["SHOWN", "dreams_section"]

SHOWN = ("imagined_return", "dynamics_loss", "entropy")
"""Metrics that the section has charts of, where there is one."""
POINTS = 500
"""Maximum number of points of a curve."""

Dreams = Mapping[int, Mapping[str, Any]]
"""Rows by step, as `RunFolder.dreams` has them."""


def dreams_section(
    charts: Charts,
    config: dict[str, Any],
    unit: str,
    headline: Headline,
    metrics: dict[str, Doubles],
    dreams: Dreams,
) -> Html | None:
    """Predictions beside the truth, and how the model learned; None without a world model.

    Args:
        charts: Collection of the charts of the page.
        config: Of the run.
        unit: Unit of the steps.
        headline: The headline metric of the run.
        metrics: Columns by name.
        dreams: Predictions of the model, by step.
    """
    if "imagined_return" not in metrics:
        return None
    options = config.get("config")
    replayed = _replayed(options if isinstance(options, dict) else {}, metrics)
    last = dreams[max(dreams)] if dreams else {}
    tiles = [*_replay_tile(replayed, unit), *_byte_tiles(last), *_return_tiles(last)]
    figures = list(_curves(charts, unit, headline, metrics, replayed))
    return section(
        "What the model dreamt",
        tag("dl", *tiles, class_="tiles") if tiles else None,
        *(_stage(charts, *stage) for stage in _stages(dreams, unit)),
        tag("div", *figures, class_="multiples") if figures else None,
    )


# Predictions


def _stages(dreams: Dreams, unit: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The first row, one next to the middle of the run, and the last, with their titles."""
    steps = sorted(dreams)
    between = sorted(steps[1:-1], key=lambda step: abs(step - steps[-1] / 2))
    found = {"Start": steps[:1], "Middle": between[:1], "End": steps[1:][-1:]}
    for name, chosen in found.items():
        for step in chosen:
            yield f"{name}: after {count(step, singular(unit))}", dreams[step]


def _stage(charts: Charts, title: str, row: Mapping[str, Any]) -> Html:
    """Strips of images, and charts of numbers."""
    context = row.get("context")
    seen = f"{title}. The model sees the first {count(context, 'observation')}, then only actions"
    strips = [
        tag(
            "figure",
            tag("figcaption", tag("span", f"{name}: truth, model, error", class_="hint")),
            tag(
                "img",
                src=f"data:image/png;base64,{picture}",
                class_="strip",
                alt=f"{title}: {name}, truth above model above error",
            ),
            class_="card",
        )
        for name, picture in _items(row, "strips")
        if isinstance(picture, str)
    ]
    figures = [
        charts.chart(name, series, hint="truth and model", x_name="row", group=title)
        for name, series in _numbers(row)
    ]
    multiples = tag("div", *figures, class_="multiples") if figures else None
    return tag("div", tag("h3", seen), *strips, multiples, class_="dream")


def _numbers(row: Mapping[str, Any]) -> Iterator[tuple[str, list[Series]]]:
    """Truth and prediction of each number of an observation, and of the reward."""
    for name, curve in _items(row, "curves"):
        pairs = [_columns(curve, part) for part in ("truth", "prediction")]
        for i, (truth, model) in enumerate(zip(*pairs, strict=False)):
            series = [
                Series(name=word, color=color, x=x, y=y)
                for word, color, values in (("truth", 1, truth), ("model", 2, model))
                for x, y in [finite(np.arange(len(values), dtype=np.float64), values)]
                if len(y)
            ]
            if series:
                yield (f"{name} {i}" if len(pairs[0]) > 1 else str(name)), series


def _columns(curve: Any, part: str) -> list[Doubles]:
    """Columns of numbers, NaN for what is none."""
    listed = curve.get(part) if isinstance(curve, Mapping) else None
    rows = [row for row in listed if isinstance(row, list)] if isinstance(listed, list) else []
    return [np.array([float(x) if is_number(x) else np.nan for x in row]) for row in rows]


def _items(row: Mapping[str, Any], name: str) -> list[tuple[Any, Any]]:
    found = row.get(name)
    return list(found.items()) if isinstance(found, Mapping) else []


# Numbers


def _replayed(options: Mapping[str, Any], metrics: dict[str, Doubles]) -> Doubles | None:
    """Replayed steps per environment step, of the run so far."""
    batch = [options.get(name) for name in ("batch_size", "sequence_length")]
    if "gradient_steps" not in metrics or not all(map(is_number, batch)):
        return None
    steps = np.where(metrics["step"] > 0, metrics["step"], np.nan)
    return np.asarray(metrics["gradient_steps"] * float(np.prod(batch)) / steps)  # type: ignore[arg-type]


def _replay_tile(replayed: Doubles | None, unit: str) -> list[Html]:
    known = np.zeros(0) if replayed is None else replayed[np.isfinite(replayed)]
    if not len(known):
        return []
    return [tile("Replayed", number(float(known[-1]), 3), f"steps per {singular(unit)}")]


def _byte_tiles(row: Mapping[str, Any]) -> list[Html]:
    sizes = dict(_items(row, "bytes"))
    words = {"latents": "Latent state", "observation": "Observation"}
    return [
        tile(title, size(sizes[name]), "per step of replay")
        for name, title in words.items()
        if is_number(sizes.get(name))
    ]


def _return_tiles(row: Mapping[str, Any]) -> list[Html]:
    returns = dict(_items(row, "returns"))
    if not all(is_number(returns.get(name)) for name in ("true", "predicted")):
        return []
    detail = f"true: {score(returns['true'])}, without seeing"
    return [tile("Predicted return", score(returns["predicted"]), detail)]


def _curves(
    charts: Charts,
    unit: str,
    headline: Headline,
    metrics: dict[str, Doubles],
    replayed: Doubles | None,
) -> Iterator[Html]:
    """Curves of returns, divergence and entropy, and of the replay ratio."""
    steps, x_name = metrics["step"], singular(unit)
    true = metrics.get(headline.metric, np.zeros(0))
    drawn: list[tuple[str, str, list[tuple[str, Doubles]]]] = [
        (
            "Imagined and true return",
            "imagined: discounted, from replayed states on; true: of episodes",
            [("true", true), ("imagined", metrics["imagined_return"])],
        ),
        ("KL divergence", "of prior and posterior", [("kl", metrics.get(SHOWN[1], np.zeros(0)))]),
        ("Entropy", "of the policy", [("entropy", metrics.get("entropy", np.zeros(0)))]),
    ]
    if replayed is not None:
        drawn.append(("Replayed steps", f"per {x_name}, of the run so far", [("ratio", replayed)]))
    for title, hint, columns in drawn:
        series = [
            one
            for color, (name, y) in enumerate(columns, 1)
            if len(y) == len(steps)
            for one in metric(name, color, steps, y, POINTS, smooth=False)
        ]
        if series:
            yield charts.chart(title, series, hint=hint, x_name=x_name)
