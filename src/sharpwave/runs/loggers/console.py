"""Metrics as lines in the terminal."""

from __future__ import annotations

import math
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from itertools import accumulate, islice
from typing import Any

from sharpwave.pages.headline import RETURN
from sharpwave.pages.samples import as_text, picked
from sharpwave.printable import printable
from sharpwave.runs.loggers.base import Metrics, Plain, Sample, plain
from sharpwave.runs.loggers.periodic import IntervalLogger

FIRST = (
    *(
        "mean_return",
        "mean_reward",
        "mean_accuracy",
        "mean_loss",
        "success_rate",
        "mean_length",
        "episodes",
    ),
    *("sps", "loss", "reward_margin", "reward_std", "completion_length", "kl", "entropy"),
)
SHORT = {
    "approx_kl": "kl",
    "clip_fraction": "clipped",
    "completion_length": "tokens",
    "explained_variance": "explained",
    "learning_rate": "lr",
    "mean_length": "length",
    "mean_return": "return",
    "sps": "steps/s",
    "success_rate": "success",
}
HIDDEN = ("timesteps", "updates")
LINES_PER_HEADER = 30
WIDTH = 10


class ConsoleLogger(IntervalLogger):
    """An aligned line every so many steps, on standard output.

    As many metrics as the terminal has room for, return, length and speed first. Of a language
    model the best completion stands above them.

    Args:
        log_interval: Steps between two lines; 0 prints every update, and None leaves it to what a
            step is: 1000 of environments and gradients, each update of language models.

    Raises:
        TypeError: If `log_interval` is not an integer.
        ValueError: If it is negative.

    Example:
        >>> ConsoleLogger().on_train_step(2048, {"mean_return": 21.5, "loss": 0.52})
              step    return      loss
             2,048      21.5      0.52
    """

    def __init__(self, log_interval: int | None = None) -> None:
        super().__init__(log_interval)
        self._names = SHORT
        self._evaluated = RETURN.words
        self._columns: list[str] = []
        self._lines = 0

    def on_training_start(self, algo: Any) -> None:
        """Takes the run's own word for what it is judged by."""
        super().on_training_start(algo)
        headline = algo.headline
        is_named = headline is not None and headline.title is not None
        self._names = {**SHORT, headline.metric: headline.words} if is_named else SHORT
        self._evaluated = (headline or RETURN).evaluated.words

    def write(self, step: int, metrics: Metrics) -> None:
        """Prints a line, with a header above it now and then."""
        row = plain(metrics)
        columns = self._fitting(row)
        if columns != self._columns or self._lines == LINES_PER_HEADER:
            self._columns = columns
            self._lines = 0
            _print("step", [self._header(name) for name in columns])
        self._lines += 1
        _print(f"{step:,}", [_text(row[name]).rjust(len(self._header(name))) for name in columns])

    def write_samples(self, step: int, rows: Sequence[Sample]) -> None:
        """Prints the best completion on a line."""
        for rank, row in islice(picked(rows).items(), 1):
            reward = "" if row["reward"] is None else f" {_text(row['reward'])}"
            prompt, completion = (as_text(row[name]) for name in ("prompt", "completion"))
            told = f" {rank}{reward}: {_shown(prompt)} \N{RIGHTWARDS ARROW} {_shown(completion)}"
            _print(f"{step:,}", [_cut(told, _room() - max(WIDTH, len(f"{step:,}")) - 1)])

    def on_eval(self, step: int, metrics: Metrics) -> None:
        """Prints a line."""
        row = {name.removeprefix("eval_"): _text(value) for name, value in plain(metrics).items()}
        mean, std = row.pop("mean_return", None), row.pop("std_return", None)
        spread = "" if std is None else f" ± {std}"
        parts = [] if mean is None else [f"{self._evaluated} {mean}{spread}"]
        agents = {name: row.pop(name) for name in list(row) if name.startswith("mean_return/")}
        parts += [f"{self._names.get(name, name)} {value}" for name, value in row.items()]
        parts += [f"{name.partition('/')[2]} {value}" for name, value in agents.items()]
        told = _cut(" evaluation: " + ", ".join(parts), _room() - max(WIDTH, len(f"{step:,}")) - 1)
        _print(f"{step:,}", [told])

    def _fitting(self, row: dict[str, Plain]) -> list[str]:
        """The metrics that fit on a line, the most telling ones first."""
        first = [name for name in FIRST if name in row]
        rest = [name for name in row if name not in FIRST and name not in HIDDEN]
        names = first + rest
        ends = accumulate((1 + len(self._header(name)) for name in names), initial=WIDTH)
        room = _room()
        return [name for name, end in zip(names, islice(ends, 1, None), strict=True) if end <= room]

    def _header(self, name: str) -> str:
        return self._names.get(name, name).rjust(WIDTH - 1)


def _room() -> int:
    """Columns of the terminal."""
    return shutil.get_terminal_size((100, 24)).columns


def _shown(text: str) -> str:
    """A model's text as this terminal can show it, on one line, without obeying it."""
    encoding = sys.stdout.encoding or "utf-8"
    return printable(text, lines=False).encode(encoding, "backslashreplace").decode(encoding)


def _cut(text: str, room: int) -> str:
    """As much of a text as fits into so many columns, of which wide characters take two."""
    widths = (2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)
    fitting = [end <= room for end in accumulate(widths)]
    return text if all(fitting) else f"{text[: max(sum(fitting) - 1, 0)]}\N{HORIZONTAL ELLIPSIS}"


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
