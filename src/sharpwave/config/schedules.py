"""Schedules of values over a run: a constant, a line, or a function of the progress remaining."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias


@dataclass(frozen=True)
class Linear:
    """Linear schedule: a value that goes from `start` to `end` over the run.

        value = progress_remaining * start + (1 - progress_remaining) * end

    Attributes:
        start: The value at the beginning, where the progress remaining is 1.
        end: The value at the end, where it is 0.

    Raises:
        TypeError: `start` or `end` is not a number.
        ValueError: `start` or `end` is not finite.

    Example:
        >>> Linear(1e-3)(0.5)
        0.0005
    """

    start: float
    end: float = 0.0

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            value: Any = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{name} of Linear must be a number, got {value!r}")
            if not math.isfinite(value):
                raise ValueError(f"{name} of Linear must be finite, got {value!r}")
            object.__setattr__(self, name, float(value))

    def __call__(self, progress_remaining: float) -> float:
        """The value where `progress_remaining` of the run is still to come."""
        return progress_remaining * self.start + (1.0 - progress_remaining) * self.end

    def __str__(self) -> str:
        return f"linear({self.start!r}, {self.end!r})"


@dataclass(frozen=True)
class Adaptive:
    """A learning rate that follows the KL divergence of each gradient step.

    Text writes it as `adaptive`, or `adaptive(3e-4)` with another start.

    Attributes:
        start: The rate of the first gradient step.
    """

    start: float = 1e-3

    bounds: ClassVar[tuple[float, float]] = (1e-5, 1e-2)
    """Least and greatest rate."""

    def __str__(self) -> str:
        return "adaptive" if self == Adaptive() else f"adaptive({self.start!r})"


ScheduleLike: TypeAlias = float | Linear | Callable[[float], float]
"""A constant, a `Linear`, or a function of the progress remaining, which falls from 1 to 0."""
RateLike: TypeAlias = ScheduleLike | Adaptive | Literal["adaptive"]
"""A schedule, or a learning rate that adapts itself; configurations make it of the word."""


def value_at(schedule: ScheduleLike, progress_remaining: float) -> float:
    """The value of a schedule where `progress_remaining` of the run is still to come.

    Args:
        schedule: A constant, a `Linear` or a callable.
        progress_remaining: 1 at the beginning of the run, 0 at its end.

    Raises:
        ValueError: The schedule gave NaN or an infinity.

    Example:
        >>> value_at(0.2, 0.5), value_at(Linear(0.2, 0.1), 0.0)
        (0.2, 0.1)
    """
    if not callable(schedule):
        return schedule
    value = float(schedule(progress_remaining))
    if not math.isfinite(value):
        raise ValueError(
            f"a schedule must give finite values, got {value} from {schedule!r} "
            f"at progress_remaining={progress_remaining}"
        )
    return value


def schedule_to_json(schedule: ScheduleLike) -> float | str | dict[str, str]:
    """A schedule as a JSON value, which `schedule_from_json` reads.

    A callable other than `Linear` cannot be written: only its name is, as `{"callable": name}`.

    Example:
        >>> schedule_to_json(Linear(1e-3))
        'linear(0.001, 0.0)'
    """
    if isinstance(schedule, Linear):
        return str(schedule)
    if callable(schedule):
        return {"callable": str(getattr(schedule, "__qualname__", type(schedule).__qualname__))}
    return schedule


def schedule_from_json(value: Any) -> float | Linear:
    """A schedule from a number, or from text such as `1e-3`, `linear(1e-3, 0)` or `lin_1e-3`.

    Raises:
        TypeError: The value is neither a number nor text.
        ValueError: The text is not a schedule, or the value stands for a callable, which JSON
            cannot hold.

    Example:
        >>> schedule_from_json("lin_1e-3")
        Linear(start=0.001, end=0.0)
    """
    if is_unwritten_callable(value):
        raise ValueError(
            f"the schedule was the callable {value['callable']!r}, which a file cannot hold: "
            "pass it again"
        )
    if isinstance(value, str):
        return _from_text(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"a schedule must be {SCHEDULE_FORMS}, got {value!r}")
    return float(value)


def adaptive_from_text(text: str) -> Adaptive:
    """An adaptive rate from `adaptive` or `adaptive(3e-4)`.

    Raises:
        ValueError: The text is neither.

    Example:
        >>> adaptive_from_text("adaptive(3e-4)").start
        0.0003
    """
    match = _ADAPTIVE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"must be 'adaptive' or 'adaptive(3e-4)', got {text!r}")
    return Adaptive() if match[1] is None else Adaptive(float(match[1]))


def is_unwritten_callable(value: Any) -> bool:
    """True if `value` is the mark that `schedule_to_json` leaves of a callable."""
    return isinstance(value, Mapping) and set(value) == {"callable"}


SCHEDULE_FORMS = "a number or text such as 'linear(1e-3, 0)' or 'lin_1e-3'"

_NUMBER = r"\s*([^\s,()]+)\s*"
_ADAPTIVE = re.compile(rf"adaptive(?:\({_NUMBER}\))?")
_LINEAR = re.compile(rf"linear\({_NUMBER}(?:,{_NUMBER})?\)|lin_{_NUMBER}")


def _from_text(text: str) -> float | Linear:
    match = _LINEAR.fullmatch(text.strip())
    try:
        if match is None:
            return float(text)
        start, end, start_to_zero = match.groups()
        return Linear(float(start or start_to_zero), float(end or 0.0))
    except ValueError:
        raise ValueError(f"a schedule must be {SCHEDULE_FORMS}, got {text!r}") from None
