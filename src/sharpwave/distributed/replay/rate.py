"""Rate limit of a replay buffer: samples per insert, enforced by making either side wait."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RateLimit"]


@dataclass(frozen=True)
class RateLimit:
    """Keeps the steps drawn from a replay near a multiple of those pushed to it.

    With p steps pushed and s drawn, `samples_per_insert * (p - min_size) - s` stays within `slack`
    of 0: pushes wait where it would exceed it, draws where it would fall below.

    Attributes:
        samples_per_insert: Times that a step is drawn, on average.
        slack: Drawn steps that either side may be ahead of the other.
        min_size: Steps that are pushed before any is drawn.

    Raises:
        ValueError: A number is out of its range.

    Example:
        >>> rate = RateLimit(samples_per_insert=8, slack=1000, min_size=100)
        >>> rate.why_not_draw(batch=256, pushed=60, sampled=0)
        'draws wait for pushes: 60 of the first 100 steps are there'
        >>> rate.why_not_draw(batch=256, pushed=200, sampled=0) is None
        True
        >>> rate.why_not_draw(batch=256, pushed=200, sampled=1600)
        'draws wait for pushes: 1600 steps are drawn of 200, 1056 more than 8 each, slack is 1000'
    """

    samples_per_insert: float
    slack: float
    min_size: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.samples_per_insert < float("inf"):
            raise ValueError(
                f"samples_per_insert must be positive and finite, got {self.samples_per_insert}"
            )
        if not self.samples_per_insert <= self.slack < float("inf"):
            raise ValueError(
                f"slack must be finite and at least samples_per_insert, {self.samples_per_insert}, "
                f"got {self.slack}"
            )
        if self.min_size < 1:
            raise ValueError(f"min_size must be at least 1, got {self.min_size}")

    def _ahead(self, pushed: int, sampled: int) -> float:
        """Drawn steps beyond what the pushed ones allow; negative where more are due."""
        return sampled - self.samples_per_insert * (pushed - self.min_size)

    def why_not_draw(self, batch: int, pushed: int, sampled: int) -> str | None:
        """Reason why a batch cannot be drawn yet; None when it can.

        Args:
            batch: Steps to draw.
            pushed: Steps pushed so far.
            sampled: Steps drawn so far.
        """
        if pushed < self.min_size:
            return f"draws wait for pushes: {pushed} of the first {self.min_size} steps are there"
        ahead = self._ahead(pushed, sampled) + batch
        if ahead <= self.slack:
            return None
        return (
            f"draws wait for pushes: {sampled} steps are drawn of {pushed}, {ahead:g} more than "
            f"{self.samples_per_insert:g} each, slack is {self.slack:g}"
        )

    def why_not_push(self, rows: int, pushed: int, sampled: int) -> str | None:
        """Reason why rows cannot be pushed yet; None when they can.

        Args:
            rows: Steps to push.
            pushed: Steps pushed so far.
            sampled: Steps drawn so far.
        """
        behind = -self._ahead(pushed + rows, sampled)
        if pushed < self.min_size or behind <= self.slack:
            return None
        return (
            f"pushes wait for draws: {sampled} steps are drawn of {pushed}, {behind:g} fewer than "
            f"{self.samples_per_insert:g} each, slack is {self.slack:g}"
        )

    def check(self, batch: int, rows: int) -> None:
        """Refuse batches and pushes with which both sides could wait for each other for ever.

        Args:
            batch: Steps of a batch.
            rows: Steps of a push.

        Raises:
            ValueError: The slack is too small for them.
        """
        needed = max(float(batch), self.samples_per_insert * rows)
        if self.slack < needed:
            raise ValueError(
                f"slack must be at least {needed:g} for {rows or batch} steps at a time, "
                f"got {self.slack:g}: both sides could wait for each other"
            )
