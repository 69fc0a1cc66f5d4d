"""Learning rates that adapt themselves, in NumPy."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


def adapted(rate: float, kls: Iterable[float], desired: float) -> list[float]:
    """The learning rate of each gradient step, from the KL divergence before it, in float32."""
    current, factor = np.float32(rate), np.float32(1.5)
    rates: list[float] = []
    for kl in map(np.float32, kls):
        if kl > np.float32(2 * desired):
            current = max(np.float32(1e-5), current / factor)
        elif np.float32(0) < kl < np.float32(desired / 2):
            current = min(np.float32(1e-2), current * factor)
        rates.append(float(current))
    return rates
