from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sharpwave.pages.report import statistics
from sharpwave.pages.report.statistics import (
    aggregate,
    bootstrap_interval,
    iqm,
    iqm_curve,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
)
from sharpwave.types import Array
from tests.reference import statistics as reference

numbers = st.floats(-1e6, 1e6)
scores_of_runs = hnp.arrays(np.float64, hnp.array_shapes(min_dims=1, max_dims=2), elements=numbers)
tables = hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2), elements=numbers)


@given(scores_of_runs)
def test_iqm_equals_the_mean_of_the_middle_half_of_copies(scores: Array) -> None:
    expected = reference.iqm(scores.reshape(-1).tolist())
    assert iqm(scores) == pytest.approx(expected, rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("quarter", [1, 2, 5])
def test_iqm_cuts_whole_scores_where_four_divides_their_number(quarter: int) -> None:
    scores = np.random.default_rng(0).normal(size=4 * quarter)
    assert iqm(scores) == pytest.approx(np.sort(scores)[quarter:-quarter].mean())


@given(scores_of_runs, st.floats(0.01, 100), numbers, st.randoms())
def test_iqm_moves_with_its_scores_and_knows_no_order(
    scores: Array, scale: float, shift: float, random: Any
) -> None:
    shuffled = scores.reshape(-1).tolist()
    random.shuffle(shuffled)
    moved = scale * np.array(shuffled) + shift
    assert iqm(moved) == pytest.approx(scale * iqm(scores) + shift, rel=1e-6, abs=1e-3)
    assert scores.min() - 1e-6 <= iqm(scores) <= scores.max() + 1e-6


@given(st.lists(numbers, min_size=4, max_size=20))
def test_outliers_in_the_outer_quarters_do_not_move_the_iqm(scores: list[float]) -> None:
    wild = sorted(scores)
    wild[0], wild[-1] = -1e9, 1e9
    assert iqm(wild) == pytest.approx(iqm(scores), rel=1e-9, abs=1e-3)


@pytest.mark.long
@given(scores_of_runs)
def test_interval_lies_within_the_scores_and_holds_their_middle(scores: Array) -> None:
    low, high = bootstrap_interval(scores, n_resamples=50)
    assert scores.min() - 1e-6 <= low <= high <= scores.max() + 1e-6


@pytest.mark.long
def test_interval_comes_from_the_seed_alone() -> None:
    scores = np.random.default_rng(0).normal(size=(5, 3))
    assert bootstrap_interval(scores, seed=1) == bootstrap_interval(scores, seed=1)
    assert bootstrap_interval(scores, seed=1) != bootstrap_interval(scores, seed=2)


@pytest.mark.long
def test_interval_of_one_run_or_of_equal_runs_is_a_point() -> None:
    assert bootstrap_interval([3.0]) == (3.0, 3.0)
    assert bootstrap_interval([3.0] * 7) == (3.0, 3.0)


@pytest.mark.long
def test_interval_widens_with_the_confidence() -> None:
    scores = np.random.default_rng(0).normal(size=8)
    narrow, wide = (bootstrap_interval(scores, confidence=c) for c in (0.5, 0.99))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_resamples_keep_every_task_to_its_own_runs() -> None:
    scores = np.arange(12.0).reshape(4, 3) + np.array([0.0, 100.0, 200.0])
    seen = []

    def check(sample: Array) -> float:
        for task in range(3):
            assert set(sample[:, task]) <= set(scores[:, task])
        seen.append(
            tuple(np.searchsorted(scores[:, task], sample[:, task]).tolist() for task in range(3))
        )
        return float(sample.mean())

    bootstrap_interval(scores, check, n_resamples=100)
    assert len(seen) == 100
    assert any(runs[0] != runs[1] for runs in seen), "tasks are resampled together"


@pytest.mark.long
def test_interval_covers_the_true_value_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    n_simulations, hits = 200, 0
    for simulation in range(n_simulations):
        scores = rng.normal(loc=3.0, size=(10, 2))
        low, high = bootstrap_interval(scores, n_resamples=200, seed=simulation)
        hits += low <= 3.0 <= high
    assert 0.88 <= hits / n_simulations <= 0.99


@given(tables, st.lists(numbers, min_size=1, max_size=5))
def test_profile_counts_the_runs_above_each_threshold(scores: Array, extra: list[float]) -> None:
    thresholds = [*extra, *scores.reshape(-1)]
    profile = performance_profile(scores, thresholds, n_resamples=20)
    expected = [reference.fraction_above(scores.tolist(), t) for t in thresholds]
    np.testing.assert_allclose(profile.center, expected, atol=1e-12)
    assert np.all((profile.low >= 0) & (profile.low <= profile.high) & (profile.high <= 1))


@given(tables)
def test_profile_never_rises(scores: Array) -> None:
    thresholds = np.linspace(-1e6 - 1, 1e6, 9)
    profile = performance_profile(scores, thresholds, n_resamples=20)
    for curve in (profile.center, profile.low, profile.high):
        assert np.all(np.diff(curve) <= 1e-12)
        assert curve[0] == 1.0
        assert curve[-1] == 0.0


def test_curve_is_the_iqm_at_every_point_and_its_band_the_interval() -> None:
    curves = np.random.default_rng(0).normal(size=(6, 4))
    band = iqm_curve([0, 1, 2, 3], curves, n_resamples=300)
    for point in range(4):
        assert band.center[point] == pytest.approx(iqm(curves[:, point]))
        low, high = bootstrap_interval(curves[:, point], n_resamples=300)
        assert (band.low[point], band.high[point]) == pytest.approx((low, high))


@given(st.data())
def test_improvement_counts_the_pairs_that_are_won(data: st.DataObject) -> None:
    n_tasks = data.draw(st.integers(1, 3))
    few = st.integers(-3, 3).map(float)
    x, y = (
        data.draw(hnp.arrays(np.float64, (data.draw(st.integers(1, 6)), n_tasks), elements=few))
        for _ in range(2)
    )
    probability = probability_of_improvement(x, y)
    assert probability == pytest.approx(
        reference.probability_of_improvement(x.tolist(), y.tolist())
    )
    assert probability + probability_of_improvement(y, x) == pytest.approx(1.0)


@given(tables, numbers)
def test_gap_is_the_mean_shortfall(scores: Array, target: float) -> None:
    expected = reference.optimality_gap(scores.tolist(), target)
    assert optimality_gap(scores, target) == pytest.approx(expected, rel=1e-9, abs=1e-6)


def test_summary_holds_the_statistics_of_the_scores() -> None:
    scores = np.random.default_rng(0).normal(size=(5, 2))
    summary = aggregate(scores, confidence=0.9, n_resamples=100, seed=3)
    assert (summary.n_runs, summary.n_tasks) == (5, 2)
    assert summary.mean == pytest.approx(scores.mean())
    assert summary.std == pytest.approx(scores.std())
    assert summary.median == pytest.approx(np.median(scores))
    assert summary.iqm == iqm(scores)
    assert summary.interval == bootstrap_interval(scores, iqm, 0.9, 100, 3)
    assert (summary.minimum, summary.maximum) == (scores.min(), scores.max())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: iqm([]), r"scores must have shape .* got \(0,\)"),
        (lambda: iqm(3.0), r"scores must have shape .* got \(\)"),
        (lambda: iqm(np.zeros((2, 2, 2))), r"scores must have shape .* got \(2, 2, 2\)"),
        (lambda: iqm([1.0, np.nan]), "scores must be finite"),
        (lambda: aggregate([np.inf]), "scores must be finite"),
        (lambda: bootstrap_interval([1.0], confidence=1.0), "confidence must lie between 0 and 1"),
        (lambda: bootstrap_interval([1.0], n_resamples=0), "n_resamples must be at least 1, got 0"),
        (lambda: performance_profile([1.0], [[1.0]]), r"thresholds must be a vector"),
        (lambda: iqm_curve([0.0, 1.0], [[1.0]]), r"curves must have shape \(n_runs, 2\) like x"),
        (lambda: iqm_curve([0.0], [[np.nan]]), "curves must be finite"),
        (lambda: probability_of_improvement([[1.0, 2.0]], [1.0]), "y must have 2 tasks like x"),
        (lambda: probability_of_improvement([1.0], []), "y must have shape"),
    ],
)
def test_bad_scores_are_refused_by_name(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_public_names_exist() -> None:
    assert all(hasattr(statistics, name) for name in statistics.__all__)
