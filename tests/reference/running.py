"""Means and variances of rows that come in batches, in float64 NumPy."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.float64]


def moments(batches: Iterable[Rows]) -> tuple[Rows, Rows]:
    """Mean and variance of all rows of all batches."""
    rows = np.concatenate(list(batches)).astype(np.float64)
    return rows.mean(0), rows.var(0)
