"""Reasons to end a run before its last step."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

from sharpwave.pages.headline import Headline
from sharpwave.runs.callbacks.base import Callback, State, require
from sharpwave.runs.interval import positive

EPISODES_KEPT = 100

"""Metrics that are called otherwise in a sentence."""


class EarlyStoppingCallback(Callback):
    """Stops when the metric that the run is judged by has not improved for `patience` updates.

    In environments that is the mean return of the last 100 finished episodes; an update before
    which no episode finished says nothing new and is not counted.

    Args:
        patience: Updates to wait for an improvement.
        min_delta: By how much a value must be better than the best one to be an improvement.

    Attributes:
        best: The best value so far; -inf (inf where lower is better) before the first.
        waited: Updates since then.

    Raises:
        TypeError: If `patience` is not an integer.
        ValueError: If `patience` is less than 1, or `min_delta` negative or nan; when the run
            starts, if it is judged by no metric, as offline algorithms are not.

    Example:
        >>> _ = sw.PPO("CartPole-v1").train(2_000, callbacks=EarlyStoppingCallback(patience=50))
    """

    def __init__(self, patience: int = 10, min_delta: float = 0.0) -> None:
        if not min_delta >= 0:
            raise ValueError(f"min_delta must be at least 0, got {min_delta}")
        self._patience = positive(patience, name="patience")
        self._min_delta = min_delta
        self._seen = 0
        self.best = -math.inf
        self.waited = 0

    def on_training_start(self, *, algo: Any, **_: Any) -> None:
        """Asks what the run is judged by."""
        headline: Headline | None = algo.headline
        if headline is None:
            raise ValueError(f"{algo.name} has no metric that early stopping could watch")
        if not math.isfinite(self.best):
            self.best = headline.worst

    def on_train_batch(self, *, algo: Any, **metrics: Any) -> bool:
        """Counts an update with a new value; stops the run when there were too many."""
        headline: Headline = algo.headline
        value = headline.value(metrics)
        if value is None or not self._is_new(headline, metrics):
            return True
        if headline.is_better(value, than=self.best, by=self._min_delta):
            self.best = value
            self.waited = 0
            return True
        self.waited += 1
        if self.waited < self._patience:
            return True
        name = f"mean {headline.words}" if headline.is_mean else headline.metric
        passed = "fallen below" if headline.lower_is_better else "exceeded"
        self.stop_reason = f"the {name} has not {passed} {self.best:g} for {self._patience} updates"
        return False

    def _is_new(self, headline: Headline, metrics: dict[str, Any]) -> bool:
        """Return whether there is a new value since the last call."""
        if headline.counted_by is None:
            return True
        before, self._seen = self._seen, int(metrics[headline.counted_by])
        return self._seen != before

    def state_dict(self) -> State:
        """The best value and how long ago it was."""
        return {
            "best": self.best if math.isfinite(self.best) else None,
            "waited": self.waited,
            "episodes_seen": self._seen,
        }

    def load_state_dict(self, state: State) -> None:
        """Takes up what `state_dict` gave."""
        self.best = -math.inf if state["best"] is None else state["best"]
        self.waited = state["waited"]
        self._seen = state["episodes_seen"]


class StopOnReturn(Callback):
    """Stops when the mean return of the last `window` training episodes reaches `threshold`.

    Args:
        threshold: The mean return to reach.
        window: Episodes of the mean, all of which must have finished: 1 to 100.

    Raises:
        TypeError: If `window` is not an integer.
        ValueError: If `window` is out of range; when the run starts, if it has no episodes.

    Example:
        >>> _ = sw.PPO("CartPole-v1").train(2_000, callbacks=StopOnReturn(475))
    """

    def __init__(self, threshold: float, window: int = EPISODES_KEPT) -> None:
        self._threshold = threshold
        self._window = positive(window, name="window")
        if self._window > EPISODES_KEPT:
            raise ValueError(f"window must be at most {EPISODES_KEPT}, got {window}")

    def on_training_start(self, *, algo: Any, **_: Any) -> None:
        """Makes sure that there are episodes."""
        require(algo, "episodes", "StopOnReturn")

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
