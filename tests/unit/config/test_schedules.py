"""Schedules give the right value, and survive JSON."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharpwave.config.schedules import (
    Linear,
    ScheduleLike,
    schedule_from_json,
    schedule_to_json,
    value_at,
)

finite = st.floats(allow_nan=False, allow_infinity=False)


@given(finite, finite)
def test_a_line_starts_and_ends_exactly(start: float, end: float) -> None:
    line = Linear(start, end)
    assert value_at(line, 1.0) == start
    assert value_at(line, 0.0) == end


@pytest.mark.parametrize(
    ("schedule", "expected"), [(0.2, 0.2), (Linear(0.4, 0.2), 0.3), (lambda p: p * p, 0.25)]
)
def test_the_value_half_way(schedule: ScheduleLike, expected: float) -> None:
    assert value_at(schedule, 0.5) == pytest.approx(expected)


@given(finite | st.builds(Linear, finite, finite))
def test_schedules_survive_json(schedule: float | Linear) -> None:
    assert schedule_from_json(json.loads(json.dumps(schedule_to_json(schedule)))) == schedule


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e-3", 1e-3),
        ("linear(1e-3, 0)", Linear(1e-3, 0)),
        ("linear(1e-3)", Linear(1e-3, 0)),
        (" linear( 0.2 ,0.1 ) ", Linear(0.2, 0.1)),
        ("lin_1e-3", Linear(1e-3, 0)),
    ],
)
def test_text_is_read(text: str, expected: float | Linear) -> None:
    assert schedule_from_json(text) == expected


@pytest.mark.parametrize(
    "text", ["", "linear", "linear()", "linear(1,2,3)", "lin_x", "linear(nan)"]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a schedule must be a number or text such as"):
        schedule_from_json(text)


@pytest.mark.parametrize("value", [None, True, [1.0], {"linear": 1}])
def test_other_json_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="a schedule must be"):
        schedule_from_json(value)


def test_a_callable_leaves_its_name_and_must_be_passed_again() -> None:
    def warm_up(progress_remaining: float) -> float:
        return progress_remaining

    written = schedule_to_json(warm_up)
    assert isinstance(written, dict)
    assert "warm_up" in written["callable"]
    with pytest.raises(ValueError, match=r"the callable '.*warm_up', .* pass it again"):
        schedule_from_json(written)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_line_has_finite_ends(value: float) -> None:
    with pytest.raises(ValueError, match="start of Linear must be finite"):
        Linear(value)


def test_a_line_has_numbers_as_ends() -> None:
    with pytest.raises(TypeError, match="end of Linear must be a number, got '0'"):
        Linear(1.0, "0")  # type: ignore[arg-type]


def test_a_callable_that_gives_nan_is_named() -> None:
    with pytest.raises(ValueError, match=r"got nan from .* at progress_remaining=0\.5"):
        value_at(lambda _: math.nan, 0.5)
