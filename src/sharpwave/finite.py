"""Whether numbers are finite."""

from __future__ import annotations

import math

import numpy as np

from sharpwave.types import Array

__all__ = ["all_finite"]


def all_finite(array: Array) -> bool:
    """Whether an array of floats holds neither NaN nor inf.

    Example:
        >>> all_finite(np.array([1.0, 2.0])), all_finite(np.array([1.0, np.inf]))
        (True, False)
    """
    # One product is cheaper than a look at every number, which decides only where it overflows.
    return math.isfinite(np.vdot(array, array)) or bool(np.isfinite(array).all())
