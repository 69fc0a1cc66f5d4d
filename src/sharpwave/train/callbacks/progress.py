"""A live progress bar."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import Any

from sharpwave.train.callbacks.base import Callback

REFRESH_SECONDS = 0.2


class ProgressCallback(Callback):
    """Shows steps, steps per second, time left, return, length and loss, live in the terminal.

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
        self._bar.add_task("", total=algo.target_timesteps, completed=step, text="")
        self._bar.start()
        self._drawn = time.perf_counter()
        self._start = (step, self._drawn)

    def on_train_batch(self, *, algo: Any, step: int, **metrics: Any) -> None:
        """Draws the bar, if it was not drawn just now."""
        if self._bar is None or time.perf_counter() - self._drawn < REFRESH_SECONDS:
            return
        self._draw(algo, step, metrics.get("loss"))

    def on_training_end(self, *, algo: Any, step: int, metrics: Any, **_: Any) -> None:
        """Leaves the bar as it is."""
        if self._bar is None:
            return
        try:
            self._draw(algo, step, metrics.get("loss"))
        finally:
            self._bar.stop()
            self._bar = None

    def _draw(self, algo: Any, step: int, loss: Any) -> None:
        now = time.perf_counter()
        # The speed of the whole run is steadier, and what remains will take that long.
        speed = (step - self._start[0]) / max(now - self._start[1], 1e-9)
        left = max(algo.target_timesteps - step, 0)
        parts = [f"{speed:,.0f} steps/s"]
        if speed > 0 and left:
            parts.append(f"{timedelta(seconds=round(left / speed))} left")
        if algo.episodes.count:
            parts.append(f"return {algo.episodes.mean_return:.1f}")
            parts.append(f"length {algo.episodes.mean_length:.0f}")
        if loss is not None:
            parts.append(f"loss {float(loss):.3g}")
        self._drawn = now
        self._bar.update(self._bar.task_ids[0], completed=step, text="  ".join(parts))
        self._bar.refresh()


def _bar(force: bool) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    return Progress(
        BarColumn(bar_width=30),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} steps  {task.fields[text]}"),
        console=Console(force_terminal=force or None),
        auto_refresh=False,
    )


ProgressBarCallback = ProgressCallback
