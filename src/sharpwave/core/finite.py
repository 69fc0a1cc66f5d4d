"""Numbers that must be finite."""

from __future__ import annotations

import math

import numpy as np

from sharpwave.errors import NonFiniteError
from sharpwave.types import Array, Nested

__all__ = ["all_finite", "check_finite", "check_weights"]


def all_finite(array: Array) -> bool:
    """Return whether an array of floats holds neither NaN nor inf.

    Example:
        >>> all_finite(np.array([1.0, 2.0])), all_finite(np.array([1.0, np.inf]))
        (True, False)
    """
    # One product is cheaper than a look at every number, which decides only where it overflows.
    return math.isfinite(np.vdot(array, array)) or bool(np.isfinite(array).all())


def check_finite(what: str, value: Nested, timesteps: int) -> None:
    """Check what a step of N environments gave, [N, ...] in every leaf.

    Raises:
        NonFiniteError: A number is NaN or inf; the environment is named.
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            check_finite(f"{what}[{key!r}]", inner, timesteps)
    elif isinstance(value, tuple):
        for index, inner in enumerate(value):
            check_finite(f"{what}[{index}]", inner, timesteps)
    elif value.dtype.kind == "f" and not all_finite(value):
        rows = np.isfinite(value.reshape(len(value), -1)).all(axis=1)
        env = int(np.argmin(rows))
        raise NonFiniteError(
            f"{what} must be finite, got {value[env]} from environment {env} at step {timesteps}"
        )


def check_weights(weights: Array, timesteps: int) -> None:
    """Check the weights [n_parameters] that somebody is about to act with.

    Raises:
        NonFiniteError: A number is NaN or inf; its place is named.
    """
    if not all_finite(weights):
        place = int(np.argmin(np.isfinite(weights)))
        raise NonFiniteError(
            f"weights must be finite, got {weights[place]} at {place}, at step {timesteps}"
        )
