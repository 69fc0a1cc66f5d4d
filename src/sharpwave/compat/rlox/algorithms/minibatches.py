"""Native updates of PPO and MAPPO, minibatch by minibatch where somebody watches them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from sharpwave.learners import Metrics
from sharpwave.learners.native import NativeMAPPOLearner, NativePPOLearner

__all__ = ["NativeMAPPOByMinibatch", "NativePPOByMinibatch"]


class NativePPOByMinibatch(NativePPOLearner):
    """Native PPO whose gradient steps can be watched: set `step` to what is to be called."""

    captured = "step"

    def descend(self, columns: dict[str, Any], orders: Any, batch_size: int) -> Metrics:
        """Gradient steps on minibatches, in one call where nobody watches them."""
        if "step" not in vars(self):
            return super().descend(columns, orders, batch_size)
        measured = []
        for rows in _minibatches(orders, batch_size):
            measured.append(self.step(columns, rows))
            if self._went_too_far(measured[-1]["approx_kl"]):
                break
        means = {name: float(np.mean([each[name] for each in measured])) for name in measured[0]}
        return {**means, "explained_variance": _explained_variance(columns)}

    def step(self, columns: dict[str, Any], rows: Any) -> Metrics:
        """One gradient step on some rows of the columns."""
        whole = {"joint"} if columns.get("joint_rows") is not None else set()
        part = {name: x if x is None or name in whole else x[rows] for name, x in columns.items()}
        return super().descend(part, np.arange(len(rows))[None], len(rows))

    def _went_too_far(self, divergence: float) -> bool:
        limit = self.config.target_kl
        return limit is not None and divergence > 1.5 * limit


class NativeMAPPOByMinibatch(NativePPOByMinibatch, NativeMAPPOLearner):
    """The same of native MAPPO."""


def _minibatches(orders: Any, batch_size: int) -> Iterator[Any]:
    for order in orders:
        for first in range(0, len(order), batch_size):
            yield order[first : first + batch_size]


def _explained_variance(columns: Mapping[str, Any]) -> float:
    variance = np.var(columns["returns"])
    rest = np.var(columns["returns"] - columns["values"])
    return float(1.0 - rest / variance) if variance > 0 else math.nan
