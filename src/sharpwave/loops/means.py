"""Means of what several updates measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sharpwave.lazy import torch
from sharpwave.learners import Metrics

__all__ = ["means"]


def means(measured: Sequence[Metrics]) -> Metrics:
    """The mean of each measurement over some updates, but for `td_errors`."""
    names = [name for name in measured[0] if name != "td_errors"]
    return {name: _mean([metrics[name] for metrics in measured]) for name in names}


def _mean(values: Sequence[object]) -> object:
    if isinstance(values[0], float | int | np.number | np.ndarray):
        return float(np.mean(values))  # type: ignore[arg-type]
    return torch.stack(values).mean()  # type: ignore[arg-type]
