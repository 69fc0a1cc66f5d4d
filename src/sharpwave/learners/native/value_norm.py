"""Running normalization of value targets, on arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ValueNormArrays"]

NAMES = ("mean", "mean_square", "weight")
DECAY = 0.99999
LEAST_VARIANCE = 1e-2
"""Minimum variance, so that returns that hardly differ are not blown up."""


class ValueNormArrays:
    """The state of `nn.ValueNorm`, for native code to update.

    Attributes:
        data: [3] mean, mean square and weight.

    Example:
        >>> norm = ValueNormArrays()
        >>> norm.data[:] = 0.02, 0.05, 0.01
        >>> norm.moments()
        (2.0, 1.0)
    """

    def __init__(self) -> None:
        self.data: npt.NDArray[np.float64] = np.zeros(3)

    def arguments(self) -> dict[str, Any]:
        """Arguments of an update."""
        return {"value_norm": self.data, "decay": DECAY}

    def moments(self) -> tuple[float, float]:
        """Mean and deviation of the returns so far; 0 and 1 before the first."""
        mean, mean_square, weight = self.data.tolist()
        if weight <= 0:
            return 0.0, 1.0
        mean /= weight
        return mean, math.sqrt(max(mean_square / weight - mean * mean, LEAST_VARIANCE))

    def denormalize(self, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Values in the unit of rewards."""
        mean, deviation = map(np.float32, self.moments())
        return x * deviation + mean

    def state_dict(self) -> dict[str, npt.NDArray[np.float64]]:
        """The numbers by name: the memory itself."""
        return {name: self.data[i : i + 1].reshape(()) for i, name in enumerate(NAMES)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copies numbers in.

        Raises:
            ValueError: Names or shapes are others. Nothing has changed then.
        """
        if set(state) != set(NAMES):
            raise ValueError(f"value_norm must have the names {sorted(NAMES)}, got {sorted(state)}")
        numbers = [np.asarray(state[name], np.float64) for name in NAMES]
        if any(number.shape != () for number in numbers):
            raise ValueError("value_norm must hold single numbers")
        self.data[:] = numbers
