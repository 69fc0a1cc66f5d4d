"""Seeds and options of a reset of native environments, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sharpwave.types import Array

__all__ = ["NativeReset"]

MASK = "reset_mask"
OPTIONS: dict[str, tuple[str, str]] = {"Pendulum-v1": ("x_init", "y_init")}
"""Gymnasium's names of the bounds of the first state, where these are not `low` and `high`."""


class NativeReset:
    """Turns what `reset` is given into what native code takes.

    Args:
        env_id: Gymnasium's id.
        spec: Its specification in native code.
        num_envs: Number of environments.
    """

    def __init__(self, env_id: str, spec: Mapping[str, Any], num_envs: int) -> None:
        self.env_id = env_id
        self.num_envs = num_envs
        self.low = np.array(spec["low"])
        self.high = np.array(spec["high"])
        self.n_variables = len(self.low)
        self.names = OPTIONS.get(env_id, ("low", "high"))

    def arguments(
        self, seed: int | Sequence[int | None] | None, options: Mapping[str, Any] | None
    ) -> tuple[Array | None, Array | None, Array | None, Array, Array]:
        """(mask, seeds, is_seeded, low, high) for a reset.

        Raises:
            ValueError: A seed or an option does not fit.
        """
        options = {} if options is None else options
        unknown = set(options) - {MASK, *self.names}
        if unknown:
            known = ", ".join((*self.names, MASK))
            raise ValueError(
                f"options of {self.env_id} must be among {known}, got {min(map(str, unknown))}"
            )
        return (self._mask(options.get(MASK)), *self._seeds(seed), *self._bounds(options))

    def _mask(self, mask: Any) -> Array | None:
        if mask is None:
            return None
        array: Array = np.asarray(mask)
        if array.shape != (self.num_envs,) or array.dtype != np.bool_:
            raise ValueError(
                f"{MASK} must be a bool array of shape ({self.num_envs},), "
                f"got {array.dtype} of shape {array.shape}"
            )
        return np.ascontiguousarray(array)

    def _seeds(self, seed: int | Sequence[int | None] | None) -> tuple[Array | None, Array | None]:
        if seed is None:
            return None, None
        if isinstance(seed, int | np.integer) and not isinstance(seed, bool):
            first = _checked_seed(seed)
            _checked_seed(first + self.num_envs - 1)
            seeds = np.arange(self.num_envs, dtype=np.uint64) + np.uint64(first)
            return seeds, np.ones(self.num_envs, np.bool_)
        if not isinstance(seed, list | tuple | np.ndarray):
            raise TypeError(f"seed must be an integer, a list of them or None, got {seed!r}")
        if len(seed) != self.num_envs:
            raise ValueError(f"seed must be one for each of {self.num_envs}, got {len(seed)}")
        numbers = [0 if one is None else _checked_seed(one) for one in seed]
        return np.array(numbers, np.uint64), np.array([one is not None for one in seed])

    def _bounds(self, options: Mapping[str, Any]) -> tuple[Array, Array]:
        low, high = self.low, self.high
        first, second = self.names
        if first not in options and second not in options:
            return low, high
        if self.env_id in OPTIONS:
            high = np.array([_number(options, name, high[i]) for i, name in enumerate(self.names)])
            for name, value in zip(self.names, high, strict=True):
                if value < 0:
                    raise ValueError(f"{name} must not be negative, got {value}")
            return -high, high
        below, above = _number(options, first, low[0]), _number(options, second, high[0])
        if below > above:
            raise ValueError(f"low must not be above high, got {below} and {above}")
        is_drawn = low < high  # a car starts without speed
        return np.where(is_drawn, below, low), np.where(is_drawn, above, high)


def _checked_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise TypeError(f"seed must be an integer, got {seed!r}")
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed must be within [0, 2**64), got {seed}")
    return int(seed)


def _number(options: Mapping[str, Any], name: str, default: Any) -> float:
    value = options.get(name, default)
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a number, got {value!r}") from error
    if not abs(number) <= 1e300:
        raise ValueError(f"{name} must be within [-1e300, 1e300], got {number}")
    return number
