"""Numbers of the user's own, on their way to the loggers."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from sharpwave.core.lazy import torch

NAMES = re.compile(r"[A-Za-z_][\w./ -]{0,99}", re.ASCII)
TAKEN = frozenset(
    {
        "algo",
        "step",
        "timesteps",
        "updates",
        "episodes",
        "gradient_steps",
        "mean_return",
        "mean_reward",
        "mean_length",
        "success_rate",
        "sps",
        "seconds",
    }
)
"""Metrics that every run logs by itself."""


class Recorded:
    """Sums of what was recorded since the last report, by name.

    Tensors are added up where they are, and nobody waits for their device.
    """

    def __init__(self) -> None:
        self._sums: dict[str, tuple[Any, int]] = {}

    def add(self, name: str, value: Any) -> None:
        """Add a number, as `Run.record` does."""
        if not isinstance(name, str):
            raise TypeError(f"name must be a string, got {type(name).__name__}")
        if not NAMES.fullmatch(name):
            raise ValueError(
                f"name must begin with a letter and have letters, digits and _./- after it, "
                f"at most 100 of them, got {name!r}"
            )
        if name in TAKEN:
            raise ValueError(f"name must be one of your own, got {name!r}, which every run logs")
        total, n = self._sums.get(name, (0.0, 0))
        self._sums[name] = (total + _number(name, value), n + 1)

    def take(self) -> dict[str, Any]:
        """The mean of each name, numbers or tensors of one element; then nothing is left."""
        means = {name: total / n for name, (total, n) in self._sums.items()}
        self._sums = {}
        return means


def _number(name: str, value: Any) -> Any:
    """A float, or a tensor of one number, which is fetched when it is logged."""
    if hasattr(value, "detach") and hasattr(value, "numel"):
        if value.numel() != 1 or value.is_complex():
            raise ValueError(
                f"value of {name!r} must be one real number, got a tensor of {value.dtype} "
                f"with shape {tuple(value.shape)}"
            )
        return value.detach().reshape(()).float()
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"value of {name!r} must be a number, got {type(value).__name__}")
    if array.size != 1:
        raise ValueError(f"value of {name!r} must be one number, got shape {array.shape}")
    return float(array.reshape(()))


def fetched(measured: Mapping[str, Any]) -> dict[str, float]:
    """Metrics as numbers; the tensors of a device are fetched at once."""
    numbers: dict[str, Any] = dict(measured)
    devices: dict[Any, list[str]] = {}
    for name, value in measured.items():
        if hasattr(value, "detach"):
            devices.setdefault(value.device, []).append(name)
        elif not isinstance(value, float):
            numbers[name] = float(value)
    for names in devices.values():
        tensors = [measured[name].detach().reshape(()).float() for name in names]
        numbers.update(zip(names, torch.stack(tensors).tolist(), strict=True))
    return numbers


def joined(measured: Sequence[dict[str, float]], summed: Container[str] = ()) -> dict[str, float]:
    """Measures of several processes as those of one: means of what is known, sums or maxima.

    Args:
        measured: Of each process, with the same names.
        summed: Names of those that add up. Of those whose name ends with `_max` the largest counts.

    Example:
        >>> joined([{"lag_max": 1.0, "reward": 2.0}, {"lag_max": 3.0, "reward": math.nan}])
        {'lag_max': 3.0, 'reward': 2.0}
    """
    found = {}
    for name in measured[0]:
        known = [one[name] for one in measured if not math.isnan(one[name])]
        if name in summed:
            found[name] = sum(known)
        elif name.endswith("_max"):
            found[name] = max(known, default=math.nan)
        else:
            found[name] = fmean(known) if known else math.nan
    return found
