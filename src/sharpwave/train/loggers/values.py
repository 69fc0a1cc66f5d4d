"""Metrics as plain numbers."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

from sharpwave.train.loggers.base import Metrics

Plain: TypeAlias = bool | int | float | str | None


def plain(metrics: Metrics, prefix: str = "") -> dict[str, Plain]:
    """The metrics as Python values, each name with a prefix.

    Example:
        >>> plain({"mean": np.float32(0.5)}, "eval/")
        {'eval/mean': 0.5}
    """
    return {prefix + name: _plain(name, value) for name, value in metrics.items()}


def numbers(metrics: Metrics, prefix: str = "") -> dict[str, float]:
    """The metrics that are numbers and not nan, each name with a prefix.

    Example:
        >>> numbers({"loss": 1, "kl": float("nan")}, "train/")
        {'train/loss': 1.0}
    """
    return {
        name: float(value)
        for name, value in plain(metrics, prefix).items()
        if isinstance(value, int | float) and not math.isnan(value)
    }


def _plain(name: str, value: Any) -> Plain:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    try:
        return float(value)  # numpy scalars and tensors of one element
    except (TypeError, ValueError):
        raise TypeError(f"metrics[{name!r}] must be a number, got {type(value).__name__}") from None
