"""Ranges, means and histograms against NumPy over all values at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sharpwave.pages.viewer.ranges import Tally, spread
from sharpwave.types import Array

any_floats = hnp.arrays(np.float32, st.integers(0, 40), elements=st.floats(width=32))
finite_floats = hnp.arrays(
    np.float64, st.integers(1, 60), elements=st.floats(-1e6, 1e6, allow_subnormal=False)
)


@pytest.mark.long
@given(st.lists(any_floats, max_size=5))
def test_blocks_add_up_to_the_whole(blocks: list[Array]) -> None:
    tally = Tally()
    for block in blocks:
        tally.add(block)
    every: Any = np.concatenate([np.empty(0, np.float32), *blocks])
    finite = every[np.isfinite(every)].astype(np.float64)
    assert tally.rows == len(every)
    assert tally.nan == np.isnan(every).sum()
    assert tally.infinite == np.isinf(every).sum()
    if len(finite):
        assert (tally.low, tally.high) == (finite.min(), finite.max())
        assert tally.mean == pytest.approx(finite.mean(), rel=1e-6, abs=1e-6 * abs(finite).max())
    else:
        assert tally.mean is None


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16"])
def test_every_type_is_counted(dtype: str) -> None:
    tally = Tally()
    tally.add(np.array([[0, 1], [1, 1]], dtype))
    assert tally.to_json() == {
        "rows_read": 2,
        "low": 0.0,
        "high": 1.0,
        "mean": 0.75,
        "nan": 0,
        "infinite": 0,
    }


@given(finite_floats, st.booleans())
def test_histogram_counts_every_value_once(values: Array, whole: bool) -> None:
    if whole:
        values = np.rint(values)
    found = spread(values, whole=whole)
    assert found is not None
    assert sum(found["counts"]) == len(values)
    assert len(found["edges"]) == len(found["counts"]) + 1 <= 80
    assert np.all(np.diff(found["edges"]) > 0)
    slack = 1e-6 * (values.max() - values.min())
    assert found["edges"][0] <= values.min() + slack
    assert values.max() <= found["edges"][-1] + slack


def test_spread_of_known_numbers() -> None:
    found = spread(np.array([1, 2, 3, 4, 10]), whole=True)
    assert found is not None
    assert found["mean"] == 4.0
    assert found["median"] == 3.0
    assert found["std"] == pytest.approx(np.sqrt(10.0))
    assert (found["low"], found["high"]) == (1.0, 10.0)
    assert found["edges"] == list(range(1, 12))
    assert found["counts"] == [1, 1, 1, 1, 0, 0, 0, 0, 0, 1]


def test_nothing_and_nothing_finite_have_no_spread() -> None:
    assert spread(np.array([])) is None
    assert spread(np.array([np.nan, np.inf])) is None


def test_equal_values_are_one_bar() -> None:
    for value in (0.0, 7.0, -3.5, 1e30):
        found = spread(np.full(9, value))
        assert found is not None
        assert max(found["counts"]) == 9
