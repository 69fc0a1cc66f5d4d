"""The pace of learning from replay: environment steps before an update, gradient steps in it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from sharpwave.config.off_policy import ReplayConfig
from sharpwave.storage.files import count_of

__all__ = ["Pace"]


class Pace:
    """Says when an update is due, and how many gradient steps it has.

    An update is due after `train_freq` steps of every environment, or `train_episodes` episodes; it
    has `gradient_steps`, or as many as `train_ratio` says. What a ratio leaves over of a gradient
    step is kept for the next update, without rounding: after n environment steps there were
    ⌊n · ratio / steps of a batch⌋ of them.

    Args:
        config: Options.
        n_learners: Processes that learn together, each of which replays a batch.
    """

    def __init__(self, config: ReplayConfig, n_learners: int = 1) -> None:
        self._count = config.gradient_steps
        self._per_step: Fraction | None = None
        if config.train_ratio is not None:
            ratio = Fraction(config.train_ratio).limit_denominator(10**9)
            self._per_step = ratio / (config.steps_per_batch * n_learners)
        self._left = Fraction(0)
        self._rounds = config.train_freq
        self._episodes = config.train_episodes
        self._from_episode = 0

    def collects(self, rounds: int, episodes: int) -> bool:
        """Return whether more steps come before the next update.

        Args:
            rounds: Steps of every environment since the last update.
            episodes: Episodes finished so far.
        """
        if self._episodes is None:
            return rounds < self._rounds
        return episodes < self._from_episode + self._episodes

    def updated(self, episodes: int) -> None:
        """Begin to count for another update, where so many episodes have finished so far."""
        self._from_episode = episodes

    def due(self, collected: int) -> int:
        """The gradient steps that follow so many environment steps; what is left is carried."""
        if self._per_step is None:
            return collected if self._count == -1 else self._count
        self._left += collected * self._per_step
        whole = int(self._left)
        self._left -= whole
        return whole

    def state_dict(self) -> dict[str, Any]:
        """The rest of a gradient step that is left over, and the episodes at the last update."""
        left = {"left": self._left.numerator, "of": self._left.denominator}
        return {**left, "from_episode": self._from_episode}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._left = Fraction(count_of(state, "left"), max(1, count_of(state, "of")))
        self._from_episode = count_of({"from_episode": 0, **state}, "from_episode")
