"""Metrics as lines in the terminal."""

from __future__ import annotations

import math
import shutil
import sys
from itertools import accumulate, islice

from sharpwave.runs.loggers.base import Metrics
from sharpwave.runs.loggers.interval import IntervalLogger
from sharpwave.runs.loggers.values import Plain, plain

FIRST = ("mean_reward", "success_rate", "mean_length", "episodes", "sps", "loss")
SHORT = {
    "approx_kl": "kl",
    "clip_fraction": "clipped",
    "explained_variance": "explained",
    "learning_rate": "lr",
    "mean_length": "length",
    "mean_reward": "return",
    "sps": "steps/s",
    "success_rate": "success",
}
HIDDEN = ("timesteps", "updates")
LINES_PER_HEADER = 30
WIDTH = 10


class ConsoleLogger(IntervalLogger):
    """An aligned line every so many steps, on standard output.

    As many metrics as the terminal has room for, return, length and speed first.

    Args:
        log_interval: Steps between two lines; 0 prints every update.

    Raises:
        TypeError: If `log_interval` is not an integer.
        ValueError: If it is negative.

    Example:
        >>> ConsoleLogger().on_train_step(2048, {"mean_reward": 21.5, "loss": 0.52})
              step    return      loss
             2,048      21.5      0.52
    """

    def __init__(self, log_interval: int = 1000) -> None:
        super().__init__(log_interval)
        self._columns: list[str] = []
        self._lines = 0

    def write(self, step: int, metrics: Metrics) -> None:
        """Prints a line, with a header above it now and then."""
        row = plain(metrics)
        columns = _columns(row)
        if columns != self._columns or self._lines == LINES_PER_HEADER:
            self._columns = columns
            self._lines = 0
            _print("step", [_header(name) for name in columns])
        self._lines += 1
        _print(f"{step:,}", [_text(row[name]).rjust(len(_header(name))) for name in columns])

    def on_eval(self, step: int, metrics: Metrics) -> None:
        """Prints a line."""
        row = {name.removeprefix("eval_"): _text(value) for name, value in plain(metrics).items()}
        mean, std = row.pop("mean_return", None), row.pop("std_return", None)
        spread = "" if std is None else f" ± {std}"
        parts = [] if mean is None else [f"return {mean}{spread}"]
        parts += [f"{SHORT.get(name, name)} {value}" for name, value in row.items()]
        _print(f"{step:,}", [" evaluation: " + ", ".join(parts)])


def _columns(row: dict[str, Plain]) -> list[str]:
    """The metrics that fit on a line, the most telling ones first."""
    first = [name for name in FIRST if name in row]
    rest = [name for name in row if name not in FIRST and name not in HIDDEN]
    ends = accumulate((1 + len(_header(name)) for name in first + rest), initial=WIDTH)
    room = shutil.get_terminal_size((100, 24)).columns
    return [
        name for name, end in zip(first + rest, islice(ends, 1, None), strict=True) if end <= room
    ]


def _header(name: str) -> str:
    return SHORT.get(name, name).rjust(WIDTH - 1)


def _print(first: str, cells: list[str]) -> None:
    sys.stdout.write(" ".join([first.rjust(WIDTH), *cells]) + "\n")
    sys.stdout.flush()


def _text(value: Plain) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if math.isnan(value):
        return "-"
    whole = [f"{value:,.0f}"] if 1000 <= abs(value) < 1e7 else []
    forms = [*whole, *(f"{value:.{digits}g}" for digits in (4, 3, 2))]
    return next((text for text in forms if len(text) < WIDTH), forms[-1])
