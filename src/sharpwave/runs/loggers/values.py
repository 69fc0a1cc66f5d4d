"""Metrics as plain numbers."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

from sharpwave.runs.loggers.base import Metrics

Plain: TypeAlias = bool | int | float | str | None


def plain(metrics: Metrics) -> dict[str, Plain]:
    """The metrics as Python values.

    Raises:
        TypeError: One of them is not a number, a string or None.

    Example:
        >>> import numpy as np
        >>> plain({"loss": np.float32(0.5)})
        {'loss': 0.5}
    """
    return {name: _plain(name, value) for name, value in metrics.items()}


def numbers(group: str, metrics: Metrics) -> dict[str, float]:
    """The metrics that are numbers and not nan, named by their group.

    Example:
        >>> numbers("eval", {"eval_mean_return": 1, "loss": float("nan")})
        {'eval/mean_return': 1.0}
    """
    return {
        f"{group}/{name.removeprefix(group + '_')}": float(value)
        for name, value in plain(metrics).items()
        if isinstance(value, int | float) and not math.isnan(value)
    }


def _plain(name: str, value: Any) -> Plain:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    try:
        return float(value)  # numpy scalars and tensors of one element
    except (TypeError, ValueError):
        raise TypeError(f"metrics[{name!r}] must be a number, got {type(value).__name__}") from None
