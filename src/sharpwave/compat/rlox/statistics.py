"""rlox's running statistics over `sharpwave.RunningStats`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sharpwave import primitives
from sharpwave.buffers.replay import check_count
from sharpwave.types import Doubles

__all__ = ["RunningStats", "RunningStatsVec"]

STD_FLOOR = 1e-8


class RunningStats:
    """Running mean and variance of numbers.

    Example:
        >>> stats = RunningStats()
        >>> stats.batch_update([1.0, 2.0, 3.0])
        >>> stats.mean(), stats.count()
        (2.0, 3)
    """

    def __init__(self) -> None:
        self._stats = primitives.RunningStats()

    def update(self, value: float) -> None:
        """Fold a number in."""
        self._stats.update(float(value))

    def batch_update(self, values: npt.ArrayLike) -> None:
        """Fold many in."""
        self._stats.update(np.ravel(np.asarray(values, np.float64)))

    def mean(self) -> float:
        """Mean; 0 before the first."""
        return float(self._stats.mean)

    def var(self) -> float:
        """Population variance; 0 before the first."""
        return float(self._stats.var) if self._stats.count else 0.0

    def std(self) -> float:
        """Square root of `var`."""
        return float(np.sqrt(self.var()))

    def count(self) -> int:
        """Number of values so far."""
        return self._stats.count

    def normalize(self, value: float) -> float:
        """(value - mean) / std; 0 where nothing has varied yet."""
        return (float(value) - self.mean()) / self.std() if self.std() > STD_FLOOR else 0.0

    def reset(self) -> None:
        """Forget all."""
        self._stats = primitives.RunningStats()


class RunningStatsVec:
    """Running mean and variance of every dimension of vectors.

    Args:
        dim: Their length.

    Example:
        >>> stats = RunningStatsVec(dim=2)
        >>> stats.batch_update([1.0, 10.0, 3.0, 30.0], batch_size=2)
        >>> stats.mean().tolist(), stats.std().tolist()
        ([2.0, 20.0], [1.0, 10.0])
    """

    def __init__(self, dim: int) -> None:
        self._dim = check_count("dim", dim, 1)
        self._stats = primitives.RunningStats(self._dim)

    def update(self, values: npt.ArrayLike) -> None:
        """Fold one vector in.

        Raises:
            ValueError: It has another length.
        """
        self._stats.update(self._vectors("values", values, 1)[0])

    def batch_update(self, data: npt.ArrayLike, batch_size: int) -> None:
        """Fold many in, given flat or as [batch_size, dim].

        Raises:
            ValueError: They are not so many numbers.
        """
        self._stats.update(self._vectors("data", data, batch_size))

    def mean(self) -> Doubles:
        """[dim] mean; 0 before the first."""
        return self._stats.mean

    def var(self) -> Doubles:
        """[dim] population variance; 0 before the first."""
        return self._stats.var if self._stats.count else np.zeros(self._dim)

    def std(self) -> Doubles:
        """[dim] square root of `var`."""
        return np.asarray(np.sqrt(self.var()))

    def normalize(self, values: npt.ArrayLike) -> Doubles:
        """[dim] (values - mean) / max(std, 1e-8)."""
        return self._normalized(self._vectors("values", values, 1)[0])

    def normalize_batch(self, data: npt.ArrayLike, batch_size: int) -> Doubles:
        """The same of many, flat."""
        return self._normalized(self._vectors("data", data, batch_size)).reshape(-1)

    def count(self) -> int:
        """Number of vectors so far."""
        return self._stats.count

    def dim(self) -> int:
        """Their length."""
        return self._dim

    def reset(self) -> None:
        """Forget all."""
        self._stats = primitives.RunningStats(self._dim)

    def _normalized(self, vectors: Doubles) -> Doubles:
        return np.asarray((vectors - self.mean()) / np.maximum(self.std(), STD_FLOOR))

    def _vectors(self, name: str, given: Any, n: int) -> Doubles:
        array = np.asarray(given, np.float64)
        if array.size != n * self._dim:
            raise ValueError(
                f"{name} must have {n * self._dim} numbers ({n} of length {self._dim}), "
                f"got {array.size}"
            )
        return array.reshape(n, self._dim)
