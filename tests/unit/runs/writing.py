"""A run that writes texts, without a language model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sharpwave.loops.loop import Run
from sharpwave.pages.headline import Headline
from tests.contract.fitting import Fit, FitLoop

HOSTILE = "</script><script>alert(1)</script>\n\t a  b \x00\x1b[31m\x9b\u2028\u202e \ud83d é 漢"
"""Markup, controls, whitespace, half a character and wide ones."""


def row(reward: float | None, completion: Any = "4", **more: Any) -> dict[str, Any]:
    """A completion as callbacks get it."""
    return {
        "prompt": "2+2=",
        "completion": completion,
        "reward": reward,
        "advantage": None,
        "length": 1,
        "finished": True,
        **more,
    }


class Lazy(Sequence[dict[str, Any]]):
    """Rows that count how many of them were made."""

    def __init__(self, rewards: list[float | None]) -> None:
        self.rewards = rewards
        self.made = 0

    def __len__(self) -> int:
        return len(self.rewards)

    def __getitem__(self, index: Any) -> Any:
        self.made += 1
        return row(self.rewards[index], f"completion {index}")


class WritingLoop(FitLoop):
    """Tells of five completions before every update."""

    headline = Headline(
        "mean_reward", title="Reward", hint="mean of the last 20 updates", each="completion"
    )
    log_every = 1
    asked = 0
    given: Sequence[dict[str, Any]] | None = None
    """The completion that it writes in every update, in place of five rewards."""

    def iterate(self, run: Run) -> dict[str, float]:
        """One update."""
        self.timesteps += 1
        run.samples_written(self._samples)
        learner = self.learner
        return learner.update(learner.rng.integers(len(learner.y), size=8))

    def progress_metrics(self) -> dict[str, float]:
        """The metric that a run is judged by."""
        return {"mean_reward": 0.25}

    def _samples(self) -> Sequence[dict[str, Any]]:
        self.asked += 1
        return (
            self.given if self.given is not None else Lazy([0.5, None, self.timesteps, 0.0, 0.25])
        )


class Write(Fit):
    """An agent that writes."""

    name = "write"

    def build(self) -> None:
        """Make learner and loop."""
        super().build()
        self.loop = WritingLoop(self.learner, self.config)
