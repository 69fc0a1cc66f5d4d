"""The metric that a run is judged by."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["RETURN", "Headline"]


@dataclass(frozen=True)
class Headline:
    """The metric that a run is judged by: reports and progress show it first.

    Example:
        >>> Headline("loss", lower_is_better=True).is_better(0.1, than=0.2)
        True
    """

    metric: str
    """Its name among the metrics of the run."""
    lower_is_better: bool = False
    """True if a lower value is better, as of a loss."""
    counted_by: str | None = None
    """The metric that counts what it is a mean of: there is a new value when that has grown. None
    for one that every update measures."""
    title: str | None = None
    """Title in reports and progress, such as "Reward"; None for the words of `metric`."""
    hint: str | None = None
    """Explanation below its curve, such as "mean of the last 20 updates"."""
    each: str = "episode"
    """The thing that an evaluation has one value for, such as "episode"."""
    evaluation: str | None = None
    """The title of what evaluations measure, where that is neither a reward nor a return."""

    def value(self, metrics: Mapping[str, Any]) -> float | None:
        """Its value among metrics; None where it has not been measured."""
        value = float(metrics.get(self.metric, math.nan))
        is_measured = self.counted_by is None or metrics.get(self.counted_by, 0) > 0
        return value if is_measured and not math.isnan(value) else None

    def is_better(self, value: float, than: float, by: float = 0.0) -> bool:
        """Return whether a value is better than another by more than a margin."""
        return value < than - by if self.lower_is_better else value > than + by

    @property
    def is_return(self) -> bool:
        """True if the metric is the return of episodes, which is called by its own name."""
        return self.metric == RETURN.metric and self.title is None

    @property
    def is_mean(self) -> bool:
        """True if the metric is a mean of returns or rewards, which evaluations measure too."""
        return self.metric in (RETURN.metric, "mean_reward")

    @property
    def words(self) -> str:
        """Name of the metric within a sentence.

        Example:
            >>> RETURN.words, Headline("policy_loss").words, Headline("x", title="Reward").words
            ('return', 'policy loss', 'reward')
        """
        if self.title is not None:
            return self.title.lower()
        return "return" if self.is_return else self.metric.replace("_", " ")

    @property
    def evaluated(self) -> Headline:
        """The metric of evaluations: the same, one with a title of its own, or the return.

        Example:
            >>> Headline("loss", evaluation="Log-probability").evaluated.words
            'log-probability'
        """
        if self.is_mean or (self.title and self.title == self.evaluation):
            return self
        if self.evaluation is None:
            return RETURN
        return Headline("evaluation", title=self.evaluation, each=self.each)

    @property
    def worst(self) -> float:
        """The worst value there is: infinity, of either sign."""
        return math.inf if self.lower_is_better else -math.inf


RETURN = Headline("mean_return", counted_by="episodes")
"""The mean return of the last 100 finished episodes."""
