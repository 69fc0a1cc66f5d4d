"""Numbers from environments that are none."""

from __future__ import annotations

import numpy as np

from sharpwave.errors import NonFiniteError
from sharpwave.finite import all_finite
from sharpwave.types import Nested

__all__ = ["NonFiniteError", "check_finite"]


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
