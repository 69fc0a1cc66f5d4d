"""A live progress bar."""

from __future__ import annotations

import sys
import time
from typing import Any

from sharpwave.pages.headline import RETURN, Headline
from sharpwave.pages.text import duration
from sharpwave.pages.units import counted, short
from sharpwave.runs.callbacks.base import Callback

REFRESH_SECONDS = 0.2
SHORTEST_BAR, LONGEST_BAR = 10, 30
"""Characters."""


class ProgressCallback(Callback):
    """Shows steps, time left, speed and loss, live, as far as the line goes.

    The metric that the run is judged by comes first: in environments the return, beside success
    rate and length of the episodes.

    Nothing is shown, and nothing imported, when standard output is not a terminal. The bar is
    drawn at update boundaries, at most five times a second, so that it costs next to nothing.

    Args:
        force: Show it even where standard output is not a terminal.

    Example:
        >>> _ = sw.PPO("CartPole-v1").train(2_000, callbacks=ProgressCallback())
    """

    def __init__(self, *, force: bool = False) -> None:
        self._force = force
        self._bar: Any = None
        self._start = (0, 0.0)
        self._drawn = 0.0

    def on_training_start(self, *, algo: Any, step: int, **_: Any) -> None:
        """Opens the bar, if there is a terminal."""
        if not (self._force or sys.stdout.isatty()):
            return
        self._bar = _bar(self._force)
        self._bar.add_task("", total=algo.target_timesteps, completed=step, text=f"{step:,}")
        self._bar.start()
        self._drawn = time.perf_counter()
        self._start = (step, self._drawn)

    def on_train_batch(self, *, algo: Any, step: int, **metrics: Any) -> None:
        """Draws the bar, if it was not drawn just now."""
        if self._bar is None or time.perf_counter() - self._drawn < REFRESH_SECONDS:
            return
        self._draw(algo, step, metrics)

    def on_training_end(self, *, algo: Any, step: int, metrics: Any, **_: Any) -> None:
        """Leaves the bar as it is."""
        if self._bar is None:
            return
        try:
            self._draw(algo, step, metrics)
        finally:
            self._bar.stop()
            self._bar = None

    def _draw(self, algo: Any, step: int, metrics: dict[str, Any]) -> None:
        now = time.perf_counter()
        # The speed of the whole run is steadier, and what remains will take that long.
        speed = (step - self._start[0]) / max(now - self._start[1], 1e-9)
        left = max(algo.target_timesteps - step, 0)
        metrics = metrics or algo.progress_metrics()
        parts = [f"{step:,}/{counted(algo.target_timesteps, algo.unit)}", *_judged(algo, metrics)]
        if "success_rate" in metrics:
            parts.append(f"success {metrics['success_rate']:.0%}")
        if speed > 0 and left:
            parts.append(f"{duration(max(round(left / speed), 1))} left")
        parts.append(f"{speed:,.0f} {short(algo.unit)}/s")
        if metrics.get("episodes"):
            parts.append(f"length {metrics['mean_length']:,.0f}")
        if "loss" in metrics:
            parts.append(f"loss {float(metrics['loss']):.3g}")
        self._drawn = now
        text = _fitting(parts, self._bar.console.width - SHORTEST_BAR - 1)
        self._bar.update(self._bar.task_ids[0], completed=step, text=text)
        self._bar.refresh()


def _judged(algo: Any, metrics: dict[str, Any]) -> list[str]:
    """The metric that the run is judged by, as far as it is known."""
    headline: Headline | None = algo.headline
    value = None if headline is None else headline.value(metrics)
    if headline is None or value is None:
        return []
    digits = f"{value:,.1f}" if headline == RETURN else f"{value:.4g}"
    return [f"{headline.words} {digits}"]


def _fitting(parts: list[str], room: int) -> str:
    """As many parts as a line has room for, the most telling ones first."""
    text = parts[0]
    for part in parts[1:]:
        if len(text) + 2 + len(part) <= room:
            text = f"{text}  {part}"
    return text


def _bar(force: bool) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    return Progress(
        BarColumn(bar_width=None, table_column=Column(ratio=1, max_width=LONGEST_BAR)),
        TextColumn("{task.fields[text]}", table_column=Column(no_wrap=True)),
        console=Console(force_terminal=force or None),
        auto_refresh=False,
        expand=True,
    )


ProgressBarCallback = ProgressCallback
