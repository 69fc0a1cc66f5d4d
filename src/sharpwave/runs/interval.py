"""Something that is due every so many steps."""

from __future__ import annotations

import operator

from sharpwave.loops.loop import LOG_EVERY


class Interval:
    """Due when at least `every` steps have passed since it last was.

    A run reaches update boundaries at whatever steps its rollouts end, so nothing here asks for a
    multiple of `every`.

    Args:
        every: Steps from one time to the next, at least 1; None leaves it to the loop.
        name: Name of `every` in errors.
        reports: Times `Loop.log_every` that None stands for.

    Attributes:
        last: The step at which it was last due, or at which the run started; None before.

    Raises:
        TypeError: If `every` is not an integer.
        ValueError: If `every` is less than 1.

    Example:
        >>> interval = Interval(1000, name="save_freq")
        >>> [step for step in range(0, 4096, 512) if interval.due(step)]
        [1024, 2048, 3072]
    """

    def __init__(self, every: int | None, *, name: str, reports: int = 1) -> None:
        self._reports = reports if every is None else None
        self.every = reports * LOG_EVERY if every is None else positive(every, name=name)
        self.last: int | None = None

    def start(self, step: int, log_every: int = LOG_EVERY) -> None:
        """A run starts here. A step beyond it is from another run, and forgotten.

        Args:
            step: The step.
            log_every: That of the loop of the run.
        """
        if self._reports is not None:
            self.every = self._reports * log_every
        if self.last is None or self.last > step:
            self.last = step

    @property
    def next(self) -> int:
        """The first step at which it is due."""
        return (self.last or 0) + self.every

    def due(self, step: int) -> bool:
        """Return whether it is due; if so, the interval is counted anew from here."""
        if step - (self.last or 0) < self.every:
            return False
        self.last = step
        return True


def positive(value: int, *, name: str) -> int:
    """The integer `value`, checked to be at least 1.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If it is less than 1.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if number < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return number
