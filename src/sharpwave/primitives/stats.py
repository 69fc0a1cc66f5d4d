"""Running statistics, and Polyak averaging of parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sharpwave import _native
from sharpwave.core.lazy import torch

__all__ = ["RunningStats", "polyak"]


class RunningStats:
    """Running mean and variance of every element of a shape, in float64.

    Batches are folded in with Chan's parallel update, so many small updates and one large one
    agree. `update`, `normalize` and `merge` may run in several threads at once; `state_dict` and
    `load_state_dict` want the others to wait.

    Args:
        shape: Shape of one sample.

    Example:
        >>> stats = RunningStats((2,))
        >>> stats.update([[1.0, 10.0], [3.0, 30.0]])
        >>> stats.mean.tolist(), stats.var.tolist()
        ([2.0, 20.0], [1.0, 100.0])
        >>> stats.normalize([[3.0, 10.0]]).round(6).tolist()
        [[1.0, -1.0]]
    """

    __slots__ = ("_count", "_m2", "_mean")

    def __init__(self, shape: int | tuple[int, ...] = ()) -> None:
        self._mean: NDArray[np.float64] = np.zeros(shape, np.float64)
        self._m2: NDArray[np.float64] = np.zeros(shape, np.float64)
        self._count: NDArray[np.float64] = np.zeros((), np.float64)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self._mean.shape

    @property
    def count(self) -> int:
        """Number of samples seen."""
        return int(self._count)

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean of the samples, zeros before the first."""
        return self._mean.copy()

    @property
    def var(self) -> NDArray[np.float64]:
        """Population variance of the samples, ones before the first."""
        if not self._count:
            return np.ones(self.shape, np.float64)
        return np.asarray(self._m2 / self._count)

    @property
    def std(self) -> NDArray[np.float64]:
        """Square root of `var`."""
        return np.asarray(np.sqrt(self.var))

    def update(self, batch: Any) -> None:
        """Folds samples in.

        Args:
            batch: [..., *shape]; without leading axes, one sample.

        Raises:
            ValueError: The shape does not fit, or the batch holds NaN or inf. Nothing has changed
                then.
        """
        _native.stats_update(self._mean, self._m2, self._count, batch)

    def normalize(self, x: Any, clip: float | None = None, epsilon: float = 1e-8) -> Any:
        """(x - mean) / sqrt(var + epsilon).

        Args:
            x: [..., *shape].
            clip: Results are held within [-clip, clip]; None for no bound.
            epsilon: Added to the variance.

        Returns:
            The shape of x, float32 if x is, otherwise float64; a tensor for a tensor.

        Raises:
            ValueError: The shape does not fit, clip is not positive, or epsilon is negative.
        """
        return _native.stats_normalize(self._mean, self._m2, self._count, x, clip, epsilon)

    def merge(self, other: RunningStats) -> None:
        """Folds the samples that another instance has seen in.

        Raises:
            ValueError: The shapes differ.
        """
        _native.stats_merge(self._mean, self._m2, self._count, other._mean, other._m2, other._count)

    def since(self, before: RunningStats) -> RunningStats:
        """The statistics of the samples that came after a copy of these was made.

        Args:
            before: The copy.

        Raises:
            ValueError: It has seen more samples.

        Example:
            >>> stats, before = RunningStats(), RunningStats()
            >>> stats.update([1.0, 2.0])
            >>> before.merge(stats)
            >>> stats.update([5.0, 7.0])
            >>> after = stats.since(before)
            >>> after.count, float(after.mean), float(after.var)
            (2, 6.0, 1.0)
        """
        after = RunningStats(self.shape)
        count = self._count - before._count
        if count < 0:
            raise ValueError(f"before must be a copy, got {before.count} samples of {self.count}")
        if count:
            after._count[...] = count
            after._mean[...] = (self._count * self._mean - before._count * before._mean) / count
            between = (after._mean - before._mean) ** 2 * before._count * count / self._count
            after._m2[...] = np.maximum(self._m2 - before._m2 - between, 0.0)
        return after

    def state_dict(self) -> dict[str, Any]:
        """The statistics as arrays: mean, var and count.

        `m2`, the sum of squared deviations that var is computed from, makes them exact.
        """
        return {"mean": self.mean, "var": self.var, "count": self.count, "m2": self._m2.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave, bit for bit; or other statistics without m2.

        Raises:
            ValueError: The shape differs, or the numbers are not those of samples.
            KeyError: A key is missing.
        """
        mean = np.array(state["mean"], np.float64)
        var = np.array(state["var"], np.float64)
        count = int(state["count"])
        m2 = np.array(state.get("m2", var * count), np.float64)
        for name, array in (("mean", mean), ("var", var), ("m2", m2)):
            if array.shape != self.shape:
                raise ValueError(f"{name} must have shape {self.shape}, got {array.shape}")
            if not np.isfinite(array).all():
                raise ValueError(f"{name} must be finite")
        if count < 0 or (var < 0).any() or (m2 < 0).any():
            raise ValueError("count, var and m2 must not be negative")
        if not np.allclose(m2, var * count):
            raise ValueError("m2 must be var times count, or left out")
        self._mean[...] = mean
        self._m2[...] = m2
        self._count[...] = count

    def __getstate__(self) -> tuple[NDArray[np.float64], ...]:
        return self._mean, self._m2, self._count

    def __setstate__(self, state: tuple[NDArray[np.float64], ...]) -> None:
        self._mean, self._m2, self._count = (array.copy() for array in state)

    def __repr__(self) -> str:
        return f"RunningStats(shape={self.shape}, count={self.count})"


def polyak(target: Any, source: Any, tau: float) -> None:
    """Polyak averaging of target networks, in place: target += tau * (source - target).

    Args:
        target: A float32 or float64 array or torch tensor, or an iterable of them (such as
            `module.parameters()`).
        source: Arrays or tensors of the source, in the same order and shapes.
        tau: From 0 (target stays) to 1.

    Raises:
        ValueError: A shape, the number of arrays or tau does not fit. Nothing has changed then.
        TypeError: target is not a float32 or float64 array.

    Example:
        >>> import numpy as np
        >>> target = np.zeros(2)
        >>> polyak(target, np.ones(2), 0.25)
        >>> target.tolist()
        [0.25, 0.25]
    """
    if not isinstance(target, np.ndarray):
        target = target if hasattr(target, "shape") else list(target)
        first = target[0] if isinstance(target, list) and target else target
        if getattr(first, "is_cuda", False):
            _polyak_of_tensors(target, source, tau)
            return
    _native.polyak(target, source, tau)


def _polyak_of_tensors(target: Any, source: Any, tau: float) -> None:
    """`polyak` on a device, in one launch for all tensors."""
    targets, sources = ([x] if isinstance(x, torch.Tensor) else list(x) for x in (target, source))
    if not 0 <= tau <= 1:
        raise ValueError(f"tau must be between 0 and 1, got {tau}")
    if len(targets) != len(sources):
        raise ValueError(f"source must hold {len(targets)} arrays like target, got {len(sources)}")
    for i, (ours, theirs) in enumerate(zip(targets, sources, strict=True)):
        if ours.shape != theirs.shape:
            raise ValueError(
                f"source {i} must have shape {tuple(ours.shape)} like target,"
                f" got {tuple(theirs.shape)}"
            )
    with torch.no_grad():
        torch._foreach_lerp_(targets, sources, tau)
