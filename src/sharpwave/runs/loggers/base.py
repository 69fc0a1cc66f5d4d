"""Base class of loggers, the list that calls them, and metrics as plain numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, TypeAlias

Metrics: TypeAlias = Mapping[str, Any]
"""Numbers by name."""

Sample: TypeAlias = Mapping[str, Any]
"""A completion of a language model, as `Callback.on_samples` has it."""


class LoggerCallback:
    """Base class of loggers, which receive the metrics of a run. Override the methods you need.

    `step` counts in the unit of the run: environment steps, or gradient steps in offline runs. A
    run calls `on_training_start`, `truncate_after` and `log_config` before its first step and
    `close` at its end; a logger that gets another number after `close` opens what it needs again.

    Example:
        >>> class Returns(LoggerCallback):
        ...     def __init__(self):
        ...         self.curve = []
        ...
        ...     def on_train_step(self, step, metrics):
        ...         self.curve.append((step, metrics["mean_return"]))
    """

    def on_training_start(self, algo: Any) -> None:
        """The run that begins; it says what it counts and what it is judged by."""

    def log_config(self, config: Mapping[str, Any]) -> None:
        """The configuration of the run, before its first number."""

    def truncate_after(self, step: int) -> None:
        """Forgets what was logged beyond a step, where that is possible.

        A run that starts at `step` will write those numbers itself.
        """

    def on_train_step(self, step: int, metrics: Metrics) -> None:
        """The metrics of an update, once per update."""

    def on_rollout_end(self, step: int, metrics: Metrics) -> None:
        """The episode statistics of a rollout, once per rollout."""

    def on_samples(self, step: int, rows: Sequence[Sample]) -> None:
        """Completions of a language model, once per update, before the metrics of that update."""

    def on_eval(self, step: int, metrics: Metrics) -> None:
        """The statistics of an evaluation."""

    def close(self) -> None:
        """Writes out what is pending and lets go of files and connections."""


class LoggerList(LoggerCallback):
    """Several loggers as one.

    Args:
        loggers: A logger, any number of them, or None.

    Raises:
        TypeError: If an entry is not a `LoggerCallback`.

    Example:
        >>> loggers = LoggerList([sw.JSONLLogger("metrics.jsonl"), sw.CSVLogger("metrics.csv")])
        >>> loggers.on_train_step(2048, {"loss": 0.5})
        >>> loggers.close()
    """

    def __init__(self, loggers: LoggerCallback | Iterable[LoggerCallback] | None = None) -> None:
        self._loggers = _checked(loggers)

    def __iter__(self) -> Iterator[LoggerCallback]:
        return iter(self._loggers)

    def __len__(self) -> int:
        return len(self._loggers)

    @property
    def reads_samples(self) -> bool:
        """True if any logger takes the completions of a language model."""
        plain = LoggerCallback.on_samples
        return any(getattr(one.on_samples, "__func__", None) != plain for one in self._loggers)

    def on_training_start(self, algo: Any) -> None:
        """Forwards to all."""
        for logger in self._loggers:
            logger.on_training_start(algo)

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Forwards to all."""
        for logger in self._loggers:
            logger.log_config(config)

    def truncate_after(self, step: int) -> None:
        """Forwards to all."""
        for logger in self._loggers:
            logger.truncate_after(step)

    def on_train_step(self, step: int, metrics: Metrics) -> None:
        """Forwards to all."""
        for logger in self._loggers:
            logger.on_train_step(step, metrics)

    def on_rollout_end(self, step: int, metrics: Metrics) -> None:
        """Forwards to all."""
        for logger in self._loggers:
            logger.on_rollout_end(step, metrics)

    def on_samples(self, step: int, rows: Sequence[Sample]) -> None:
        """Forwards to all."""
        for logger in self._loggers:
            logger.on_samples(step, rows)

    def on_eval(self, step: int, metrics: Metrics) -> None:
        """Forwards to all."""
        for logger in self._loggers:
            logger.on_eval(step, metrics)

    def close(self) -> None:
        """Closes all, even when one raises."""
        with ExitStack() as stack:
            for logger in reversed(self._loggers):
                stack.callback(logger.close)


def _checked(
    loggers: LoggerCallback | Iterable[LoggerCallback] | None,
) -> tuple[LoggerCallback, ...]:
    if loggers is None:
        return ()
    if isinstance(loggers, LoggerCallback):
        return (loggers,)
    if not isinstance(loggers, Iterable):
        raise TypeError(f"loggers must be LoggerCallback objects, got {loggers!r}")
    entries = tuple(loggers)
    for i, entry in enumerate(entries):
        if not isinstance(entry, LoggerCallback):
            raise TypeError(f"loggers[{i}] must be a LoggerCallback, got {entry!r}")
    return entries


Plain: TypeAlias = bool | int | float | str | None


def plain(metrics: Metrics) -> dict[str, Plain]:
    """The metrics as Python values.

    Raises:
        TypeError: One of them is not a number, a string or None.

    Example:
        >>> import numpy as np
        >>> plain({"loss": np.float32(0.5)})
        {'loss': 0.5}
    """
    return {name: _plain(name, value) for name, value in metrics.items()}


def numbers(group: str, metrics: Metrics) -> dict[str, float]:
    """The metrics that are numbers and not nan, named by their group.

    Example:
        >>> numbers("eval", {"eval_mean_return": 1, "loss": float("nan")})
        {'eval/mean_return': 1.0}
    """
    return {
        f"{group}/{name.removeprefix(group + '_')}": float(value)
        for name, value in plain(metrics).items()
        if isinstance(value, int | float) and not math.isnan(value)
    }


def _plain(name: str, value: Any) -> Plain:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    try:
        return float(value)  # numpy scalars and tensors of one element
    except (TypeError, ValueError):
        raise TypeError(f"metrics[{name!r}] must be a number, got {type(value).__name__}") from None
