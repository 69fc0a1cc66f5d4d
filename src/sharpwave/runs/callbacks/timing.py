"""Profile of a run: seconds spent in collection, updates, callbacks and so on."""

from __future__ import annotations

from typing import Any

from sharpwave.runs.callbacks.base import Callback


class TimingCallback(Callback):
    """Measures the wall-clock time of the sections of one `train()`.

    Attributes:
        seconds: By section, e.g. `"env"`, `"act"`, `"update"`; filled when the run ends.

    Example:
        >>> timing = TimingCallback()
        >>> _ = sw.PPO("CartPole-v1").train(2_000, callbacks=timing)
        >>> timing.summary()  # doctest: +ELLIPSIS
        {...}
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._before: dict[str, float] = {}

    def on_training_start(self, *, algo: Any, **_: Any) -> None:
        """Remembers what earlier runs of the same algorithm took."""
        self._before = dict(algo.timings)

    def on_training_end(self, *, algo: Any, **_: Any) -> None:
        """Takes the difference."""
        self.seconds = {
            section: seconds - self._before.get(section, 0.0)
            for section, seconds in algo.timings.items()
        }

    def summary(self) -> dict[str, float]:
        """The share of each section in per cent; empty before a run has ended."""
        total = sum(self.seconds.values())
        if total <= 0:
            return {}
        return {section: 100 * seconds / total for section, seconds in self.seconds.items()}
