"""Reasons to end a run before its last step."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

from sharpwave.train.callbacks.base import Callback, State
from sharpwave.train.interval import positive

EPISODES_KEPT = 100


class EarlyStoppingCallback(Callback):
    """Stops when the mean return has not improved for `patience` updates.

    The mean is that of the last 100 finished episodes; an update before which no episode finished
    says nothing new and is not counted.

    Args:
        patience: Updates to wait for an improvement.
        min_delta: By how much a mean must exceed the best one to be an improvement.

    Attributes:
        best: The best mean return so far; `-inf` before the first episode.
        waited: Updates since then.

    Raises:
        TypeError: If `patience` is not an integer.
        ValueError: If `patience` is less than 1, or `min_delta` negative or nan.

    Example:
        >>> _ = sw.PPO("CartPole-v1").train(2_000, callbacks=EarlyStoppingCallback(patience=50))
    """

    def __init__(self, patience: int = 10, min_delta: float = 0.0) -> None:
        if not min_delta >= 0:
            raise ValueError(f"min_delta must be at least 0, got {min_delta}")
        self._patience = positive(patience, name="patience")
        self._min_delta = min_delta
        self._episodes_seen = 0
        self.best = -math.inf
        self.waited = 0

    def on_train_batch(self, *, algo: Any, **_: Any) -> bool:
        """Counts an update that has seen new episodes; stops the run when there were too many."""
        mean = float(algo.episodes.mean_return)
        if algo.episodes.count == self._episodes_seen or math.isnan(mean):
            return True
        self._episodes_seen = algo.episodes.count
        if mean > self.best + self._min_delta:
            self.best = mean
            self.waited = 0
            return True
        self.waited += 1
        if self.waited < self._patience:
            return True
        self.stop_reason = (
            f"the mean return has not exceeded {self.best:g} for {self._patience} updates"
        )
        return False

    def state_dict(self) -> State:
        """The best mean and how long ago it was."""
        return {
            "best": self.best if math.isfinite(self.best) else None,
            "waited": self.waited,
            "episodes_seen": self._episodes_seen,
        }

    def load_state_dict(self, state: State) -> None:
        """Takes up what `state_dict` gave."""
        self.best = -math.inf if state["best"] is None else state["best"]
        self.waited = state["waited"]
        self._episodes_seen = state["episodes_seen"]


class StopOnReturn(Callback):
    """Stops when the mean return of the last `window` training episodes reaches `threshold`.

    Args:
        threshold: The mean return to reach.
        window: Episodes of the mean, all of which must have finished: 1 to 100.

    Raises:
        TypeError: If `window` is not an integer.
        ValueError: If `window` is out of range.

    Example:
        >>> _ = sw.PPO("CartPole-v1").train(2_000, callbacks=StopOnReturn(475))
    """

    def __init__(self, threshold: float, window: int = EPISODES_KEPT) -> None:
        self._threshold = threshold
        self._window = positive(window, name="window")
        if self._window > EPISODES_KEPT:
            raise ValueError(f"window must be at most {EPISODES_KEPT}, got {window}")

    def on_train_batch(self, *, algo: Any, **_: Any) -> bool:
        """Stops the run when the threshold is reached."""
        returns = algo.episodes.returns
        if len(returns) < self._window:
            return True
        mean = sum(islice(reversed(returns), self._window)) / self._window
        if mean < self._threshold:
            return True
        self.stop_reason = (
            f"the last {self._window} episodes returned {mean:.1f} in the mean, "
            f"which reaches {self._threshold:g}"
        )
        return False
