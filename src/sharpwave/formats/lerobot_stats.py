"""Statistics of features by which LeRobot normalizes: mean, standard deviation and range."""

from __future__ import annotations

from typing import Any

import numpy as np

from sharpwave.types import Array


class FeatureStats:
    """Gathers the statistics of a feature, group of rows by group of rows.

    Args:
        image: Rows are images with the channels last: statistics are per channel, of values from 0
            to 1, with the shape [channels, 1, 1].
    """

    def __init__(self, *, image: bool) -> None:
        self._image = image
        self._frames = 0
        self._values = 0

    @np.errstate(all="ignore")
    def add(self, rows: Array) -> None:
        """Take rows in, [N, ...]; where they are not finite, neither are the statistics."""
        self._frames += len(rows)
        flat = rows.reshape(-1, rows.shape[-1]) if self._image else rows.reshape(len(rows), -1)
        values = flat.astype(np.float64) / (255 if self._image else 1)
        count, mean = len(values), values.mean(axis=0)
        squares = ((values - mean) ** 2).sum(axis=0)
        if self._values == 0:
            self._low, self._high = values.min(axis=0), values.max(axis=0)
            self._mean, self._squares = mean, squares
        else:
            # Chan's way to join the means and squared deviations of two groups.
            total = self._values + count
            apart = mean - self._mean
            self._mean = self._mean + apart * count / total
            self._squares = self._squares + squares + apart**2 * self._values * count / total
            self._low = np.minimum(self._low, values.min(axis=0))
            self._high = np.maximum(self._high, values.max(axis=0))
        self._values += count

    def to_json(self, shape: tuple[int, ...]) -> dict[str, Any]:
        """The statistics as JSON values.

        Args:
            shape: Shape of the feature.
        """
        if self._values == 0:
            return {}
        shape = (-1, 1, 1) if self._image else shape
        numbers = {
            "min": self._low,
            "max": self._high,
            "mean": self._mean,
            "std": np.sqrt(self._squares / self._values),
        }
        named = {name: array.reshape(shape).tolist() for name, array in numbers.items()}
        return {**named, "count": [self._frames]}
