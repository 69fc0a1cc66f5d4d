"""A logger that takes some of the updates."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from sharpwave.loops.loop import LOG_EVERY
from sharpwave.runs.loggers.base import LoggerCallback, Metrics, Sample


class IntervalLogger(LoggerCallback, ABC):
    """Writes an update when `log_interval` steps have passed since the last it wrote.

    The last update before `close` is always written.

    Args:
        log_interval: Steps between two updates to write; 0 writes all, and None leaves it to what a
            step is: 1000 of environments and gradients, each update of language models.

    Raises:
        TypeError: If `log_interval` is not an integer.
        ValueError: If it is negative.
    """

    def __init__(self, log_interval: int | None = None) -> None:
        self._is_given = log_interval is not None
        try:
            self._interval = LOG_EVERY if log_interval is None else operator.index(log_interval)
        except TypeError:
            raise TypeError(f"log_interval must be an integer, got {log_interval!r}") from None
        if self._interval < 0:
            raise ValueError(f"log_interval must be at least 0, got {log_interval}")
        self._last = 0
        self._skipped: tuple[int, Metrics] | None = None

    @abstractmethod
    def write(self, step: int, metrics: Metrics) -> None:
        """Writes the metrics of an update."""

    def write_samples(self, step: int, rows: Sequence[Sample]) -> None:
        """Writes what a language model wrote; nothing unless a subclass does."""

    def on_training_start(self, algo: Any) -> None:
        """Takes the interval that fits what the run counts, where none was given."""
        if not self._is_given:
            self._interval = algo.log_every

    def on_samples(self, step: int, rows: Sequence[Sample]) -> None:
        """Writes the samples of an update whose metrics will be written."""
        if step - self._last >= self._interval:
            self.write_samples(step, rows)

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
