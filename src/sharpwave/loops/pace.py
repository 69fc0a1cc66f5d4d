"""The replay ratio: number of gradient steps after environment steps."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from sharpwave.config.off_policy import ReplayConfig
from sharpwave.storage.files import count_of

__all__ = ["Pace"]


class Pace:
    """Counts the gradient steps that are due, by `gradient_steps` or by `train_ratio`.

    What a ratio leaves over of a gradient step is kept for the next update, without rounding: after
    n environment steps there were ⌊n · ratio / steps of a batch⌋ of them.

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

    def due(self, collected: int) -> int:
        """The gradient steps that follow so many environment steps; what is left is carried."""
        if self._per_step is None:
            return collected if self._count == -1 else self._count
        self._left += collected * self._per_step
        whole = int(self._left)
        self._left -= whole
        return whole

    def state_dict(self) -> dict[str, Any]:
        """The fraction of a gradient step that is left over."""
        return {"left": self._left.numerator, "of": self._left.denominator}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._left = Fraction(count_of(state, "left"), max(1, count_of(state, "of")))
