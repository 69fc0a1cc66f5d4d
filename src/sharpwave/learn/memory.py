"""Memory that native learners share with whoever made it."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Floats", "Numbers", "Optimized", "rows_of"]

Floats: TypeAlias = npt.NDArray[np.float32]
Numbers: TypeAlias = npt.NDArray[np.float64]


class Optimized(NamedTuple):
    """Flat parameters and the state of the Adam that moves them."""

    data: Floats
    """[n] parameters."""
    grad: Floats
    """[n] gradient."""
    exp_avg: Floats
    """[n] mean of the gradients."""
    exp_avg_sq: Floats
    """[n] mean of their squares."""
    steps: Floats
    """[] steps so far."""
    lr: Floats
    """[] learning rate."""
    beta1: float
    """Decay of the mean."""
    beta2: float
    """Decay of the mean square."""
    eps: float
    """Added to its root."""

    @classmethod
    def of(cls, data: Floats, *, lr: float = 1e-3, eps: float = 1e-8) -> Optimized:
        """Parameters that nothing has moved yet."""
        zero = np.zeros((), np.float32)
        rate = np.array(lr, np.float32)
        zeros = (np.zeros_like(data) for _ in range(3))
        return cls(data, *zeros, zero, rate, 0.9, 0.999, eps)


def rows_of(obs: Any) -> Any:
    """Observations [B, ...] as rows [B, n]."""
    return obs if obs.ndim == 2 else obs.reshape(len(obs), -1)
