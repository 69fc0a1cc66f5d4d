"""PPO's native updates, minibatch by minibatch where somebody watches them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from sharpwave.learners import Metrics
from sharpwave.learners.native import NativePPOLearner

__all__ = ["NativePPOByMinibatch"]


class NativePPOByMinibatch(NativePPOLearner):
    """Native PPO whose gradient steps can be watched: set `step` to what is to be called."""

    captured = "step"

    def update(self, batch: Any) -> Metrics:
        """Learn from one rollout, in one call where nobody watches its steps."""
        if "step" not in vars(self):
            return super().update(batch)
        columns, measured = self.columns(batch), []
        for rows in self._minibatches(len(columns["obs"])):
            measured.append(self.step(columns, rows))
            if self._went_too_far(measured[-1]["approx_kl"]):
                break
        self.updates += 1
        means = {name: float(np.mean([each[name] for each in measured])) for name in measured[0]}
        return {**means, "explained_variance": _explained_variance(columns)}

    def step(self, columns: dict[str, Any], rows: Any) -> Metrics:
        """One gradient step on some rows of the columns."""
        part = {name: None if x is None else x[rows] for name, x in columns.items()}
        return self.descend(part, np.arange(len(rows))[None], len(rows))

    def _minibatches(self, n: int) -> Iterator[Any]:
        for order in self.orders(self.config.n_epochs, n):
            for first in range(0, n, self.config.batch_size):
                yield order[first : first + self.config.batch_size]

    def _went_too_far(self, divergence: float) -> bool:
        limit = self.config.target_kl
        return limit is not None and divergence > 1.5 * limit


def _explained_variance(columns: Mapping[str, Any]) -> float:
    variance = np.var(columns["returns"])
    rest = np.var(columns["returns"] - columns["values"])
    return float(1.0 - rest / variance) if variance > 0 else math.nan
