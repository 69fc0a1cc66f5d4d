"""A logger that takes some of the updates."""

from __future__ import annotations

import operator

from sharpwave.runs.loggers.base import LoggerCallback, Metrics


class IntervalLogger(LoggerCallback):
    """Writes an update when `log_interval` steps have passed since the last it wrote.

    The last update before `close` is always written.

    Args:
        log_interval: Steps between two updates to write; 0 writes all.

    Raises:
        TypeError: If `log_interval` is not an integer.
        ValueError: If it is negative.
    """

    def __init__(self, log_interval: int) -> None:
        try:
            self._interval = operator.index(log_interval)
        except TypeError:
            raise TypeError(f"log_interval must be an integer, got {log_interval!r}") from None
        if self._interval < 0:
            raise ValueError(f"log_interval must be at least 0, got {log_interval}")
        self._last = 0
        self._skipped: tuple[int, Metrics] | None = None

    def write(self, step: int, metrics: Metrics) -> None:
        """Writes the metrics of an update."""
        raise NotImplementedError

    def on_train_step(self, step: int, metrics: Metrics) -> None:
        """Writes the update, if it is time."""
        # What only an update said that is skipped is said with the next one.
        seen = {} if self._skipped is None else self._skipped[1]
        metrics = {**seen, **metrics}
        if step - self._last < self._interval:
            self._skipped = (step, metrics)
            return
        self._last = step
        self._skipped = None
        self.write(step, metrics)

    def truncate_after(self, step: int) -> None:
        """Counts from here."""
        self._last = step
        self._skipped = None

    def close(self) -> None:
        """Writes the last update, if it was skipped."""
        if self._skipped is not None:
            step, metrics = self._skipped
            self._skipped = None
            self.write(step, metrics)
