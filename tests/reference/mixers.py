"""The mixer of QMIX in float64, one row at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def monotonic(weights: Mapping[str, Any], values: Any, states: Any) -> Array:
    """[B] values of teams.

    Args:
        weights: The parameters of `MonotonicMixer` by name.
        values: [B, A] of the agents.
        states: [B, S].
    """
    w = {name: np.asarray(x, np.float64) for name, x in weights.items()}

    def layer(name: str, x: Array) -> Array:
        return w[f"{name}.weight"] @ x + w[f"{name}.bias"]

    def two_layers(name: str, x: Array) -> Array:
        return layer(f"{name}.2", np.maximum(layer(f"{name}.0", x), 0.0))

    found = []
    for q, s in zip(np.asarray(values, np.float64), np.asarray(states, np.float64), strict=True):
        first = np.abs(two_layers("first", s)).reshape(len(q), -1)
        x = first.T @ q + layer("first_bias", s)
        hidden = np.where(x > 0, x, np.expm1(x))
        second = np.abs(two_layers("second", s))
        found.append(second @ hidden + two_layers("second_bias", s)[0])
    return np.array(found)
