"""The mean of what the last updates measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

__all__ = ["RECENT", "RecentMetric"]

RECENT = 20
"""Updates that the progress of a run is a mean of."""


class RecentMetric:
    """A metric of the last updates. Tensors are not waited for until their mean is asked for.

    Args:
        measure: The metric.

    Example:
        >>> recent = RecentMetric("reward")
        >>> recent.add({"reward": 1.0})
        >>> recent.add({"reward": 2.0, "loss": 3.0})
        >>> recent.metrics()
        {'mean_reward': 1.5}
    """

    def __init__(self, measure: str) -> None:
        self.measure = measure
        self._values: list[Any] = []

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Take the metric out of those of an update; one that did not measure it counts not."""
        if self.measure in metrics:
            self._values = [*self._values, metrics[self.measure]][-RECENT:]

    def metrics(self) -> dict[str, float]:
        """The mean by its name; nothing where nothing was measured."""
        known = [value for value in self.values() if not math.isnan(value)]
        return {f"mean_{self.measure}": float(np.mean(known))} if known else {}

    def values(self) -> list[float]:
        """The values that the mean is of, for a checkpoint."""
        self._values = [float(value) for value in self._values]
        return list(self._values)

    def load(self, values: Iterable[float]) -> None:
        """Go on from `values`."""
        self._values = [float(value) for value in values]
