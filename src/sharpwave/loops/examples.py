"""The loops of language models that learn from examples."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar

from sharpwave.loops.loop import Loop, Run
from sharpwave.loops.recent import RECENT, RecentMetric
from sharpwave.pages.headline import Headline
from sharpwave.pages.units import UPDATES

if TYPE_CHECKING:
    from sharpwave.learners import Metrics
    from sharpwave.llm import Examples

__all__ = ["ACCURACY", "DemonstrationLoop", "ExampleLoop", "PairLoop", "RatingLoop"]

ACCURACY = Headline(
    "mean_accuracy",
    title="Accuracy",
    hint=f"share of pairs, mean of the last {RECENT} updates",
    each="pair",
    evaluation="Accuracy",
)
"""The share of pairs in which the model prefers the chosen completion."""


class ExampleLoop(Loop):
    """Draws examples in an order that follows from the seed alone, and learns from them.

    Args:
        learner: The learner, which takes batches of examples.
        config: Options, with `n_examples`.
        examples: Examples to learn from; None until `train` is given some.
        seed: Of the order of examples.

    Attributes:
        drawn: Examples so far.
    """

    unit = UPDATES
    headline: ClassVar[Headline]
    log_every = 1
    measure: ClassVar[str]
    """The metric of an update that tells how far learning has come."""
    things: ClassVar[str] = "examples"
    """Name of the examples in the plural, such as "pairs"."""

    def __init__(self, learner: Any, config: Any, *, examples: Examples | None, seed: int) -> None:
        super().__init__(learner, config)
        self.examples = examples
        self.seed = seed
        self.drawn = 0
        self._recent = RecentMetric(self.measure)

    @property
    def subject(self) -> str:
        """Number of examples, and of those that were dropped, in words."""
        if self.examples is None:
            return self.things
        dropped = f", {self.examples.dropped:,} dropped" if self.examples.dropped else ""
        return f"{len(self.examples):,} {self.things}{dropped}"

    @property
    def rows(self) -> int:
        """Examples of an update."""
        return int(self.config.n_examples)

    def check(self) -> None:
        """Raise where there is nothing to learn from."""
        if self.examples is None:
            raise ValueError("dataset must be given to the constructor or to train")

    def iterate(self, run: Run) -> Metrics:
        """One update."""
        self.check()
        assert self.examples is not None
        self.follow(run.progress_remaining)
        rows = self.examples.rows(self.drawn, self.config.n_examples, self.seed)
        self.drawn += len(rows)
        began = time.perf_counter()
        metrics = self.learner.update(self.examples.select(rows).batch(self.learner.model.device))
        self.timings["update"] += time.perf_counter() - began
        self.timesteps += 1
        self._recent.add(metrics)
        return {**metrics, **self.learner.metrics()}

    def progress_metrics(self) -> dict[str, float]:
        """The mean of the last updates."""
        return self._recent.metrics()

    def state_dict(self) -> dict[str, Any]:
        """The number of examples drawn, and the recent values of the metric."""
        return {"drawn": self.drawn, "recent": self._recent.values()}

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool, source: str) -> None:  # noqa: ARG002
        """Continue from `state_dict`."""
        self.drawn = int(state["drawn"])
        self._recent.load(state["recent"])


class PairLoop(ExampleLoop):
    """The loop of learning from preferences."""

    measure = "accuracy"
    things = "pairs"
    headline = ACCURACY


class DemonstrationLoop(ExampleLoop):
    """The loop of learning from completions to write."""

    measure = "loss"
    headline = Headline(
        "mean_loss",
        lower_is_better=True,
        title="Loss",
        hint=f"mean of the last {RECENT} updates",
        each="example",
        evaluation="Log-probability of a token",
    )


class RatingLoop(ExampleLoop):
    """The loop of learning from completions that are good or not."""

    measure = "reward_margin"
    things = "completions"
    headline = Headline(
        "mean_reward_margin",
        title="Margin",
        hint=f"reward of good completions less that of others, mean of the last {RECENT} updates",
        each="completion",
        evaluation="Accuracy",
    )
