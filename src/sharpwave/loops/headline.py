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
    """Whether learning lowers it, as it does a loss."""
    counted_by: str | None = None
    """The metric that counts what it is a mean of: there is a new value when that has grown. None
    for one that every update measures."""
    title: str | None = None
    """What pages and progress call it, such as "Reward"; words of its name when None."""
    hint: str | None = None
    """How to read its curve, such as "mean of the last 20 updates"."""
    each: str = "episode"
    """What an evaluation has one value for."""
    evaluation: str | None = None
    """The title of what evaluations measure, where that is neither a reward nor a return."""

    def value(self, metrics: Mapping[str, Any]) -> float | None:
        """Its value among metrics; None where it has not been measured."""
        value = float(metrics.get(self.metric, math.nan))
        is_measured = self.counted_by is None or metrics.get(self.counted_by, 0) > 0
        return value if is_measured and not math.isnan(value) else None

    def is_better(self, value: float, than: float, by: float = 0.0) -> bool:
        """Whether a value is better than another by more than a margin."""
        return value < than - by if self.lower_is_better else value > than + by

    @property
    def is_return(self) -> bool:
        """Whether it is the return of episodes, which has words of its own."""
        return self.metric == "mean_reward" and self.title is None

    @property
    def words(self) -> str:
        """What it is called within a line.

        Example:
            >>> RETURN.words, Headline("policy_loss").words, Headline("x", title="Reward").words
            ('return', 'policy loss', 'reward')
        """
        if self.title is not None:
            return self.title.lower()
        return "return" if self.is_return else self.metric.replace("_", " ")

    @property
    def evaluated(self) -> Headline:
        """What evaluations measure: the same, something with a title of its own, or the return.

        Example:
            >>> Headline("loss", evaluation="Log-probability").evaluated.words
            'log-probability'
        """
        if self.metric == RETURN.metric or (self.title and self.title == self.evaluation):
            return self
        if self.evaluation is None:
            return RETURN
        return Headline("evaluation", title=self.evaluation, each=self.each)

    @property
    def worst(self) -> float:
        """What every value is better than."""
        return math.inf if self.lower_is_better else -math.inf


RETURN = Headline("mean_reward", counted_by="episodes")
"""The mean return of the last 100 finished episodes."""
