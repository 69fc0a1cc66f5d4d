"""Tests of counts against probabilities."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def assert_fits(counts: npt.ArrayLike, probabilities: npt.ArrayLike) -> None:
    """Pearson's chi-square test at about five standard deviations.

    Outcomes of probability 0 must not have occurred. The seeds of the draws are fixed, so a test
    passes for ever or never.
    """
    observed = np.asarray(counts, np.float64)
    expected = np.asarray(probabilities, np.float64)
    expected = expected / expected.sum() * observed.sum()
    assert np.all(observed[expected == 0] == 0)
    observed, expected = observed[expected > 0], expected[expected > 0]
    assert np.all(expected >= 5), "too few draws for the test"
    statistic = float(((observed - expected) ** 2 / expected).sum())
    freedom = len(observed) - 1
    # Wilson and Hilferty: the cube root of chi-square over its freedom is about normal.
    spread = 2 / (9 * freedom)
    deviation = ((statistic / freedom) ** (1 / 3) - (1 - spread)) / np.sqrt(spread)
    assert deviation < 5, f"chi-square {statistic:.1f} at {freedom} degrees of freedom"
