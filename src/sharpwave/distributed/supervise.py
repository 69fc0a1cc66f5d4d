"""Supervision of actors: restarts after a failure, and the limit at which a run ends."""

from __future__ import annotations

import threading

from sharpwave.core.notice import notice
from sharpwave.errors import ActorFailed, EnvironmentFailed, NonFiniteError

__all__ = ["MOST_FAILURES", "Lives"]

MOST_FAILURES = 3
"""Failures of an actor in a row, without an unroll between, that end a run."""


class Lives:
    """The lives of the actors of a fleet.

    An actor that fails loses the unroll that it was making, and is made again. One that fails so
    many times in a row, without an unroll between, ends the run. So does a number that is not
    finite, since it would come again.

    Args:
        n_actors: Number of actors.
        most_failures: Failures in a row that end the run; 1 where actors cannot be made again.
        before: Lives of actors in whose place these are; their failures go on being counted.

    Attributes:
        numbers: Number of times that each actor was made again.
        failures: Failures so far.
        restarts: Actors that were made again.
        lost: Unrolls that were lost with an actor.
    """

    def __init__(
        self, n_actors: int, most_failures: int = MOST_FAILURES, *, before: Lives | None = None
    ) -> None:
        self.numbers = [0] * n_actors
        counts = {} if before is None else before.counts()
        self.failures = counts.get("failures", 0)
        self.restarts = counts.get("restarts", 0)
        self.lost = counts.get("lost", 0)
        self._most = most_failures
        self._in_a_row = [0] * n_actors
        self._lock = threading.Lock()

    @property
    def can_revive(self) -> bool:
        """True if actors can be made again."""
        return self._most > 1

    def failed(self, actor: int, error: BaseException | None, *, lost: int = 1) -> bool:
        """Count a failure; return True if the actor should be made again.

        Args:
            actor: Index of the actor.
            error: Exception that it raised; None where it just ended.
            lost: Unrolls that are lost with it.
        """
        with self._lock:
            self.failures += 1
            self.lost += lost
            self._in_a_row[actor] += 1
            if isinstance(error, NonFiniteError) or self._in_a_row[actor] >= self._most:
                self._in_a_row[actor] = 0  # whoever goes on nevertheless begins anew
                return False
            self._revive(actor)
        what = "it ended" if error is None else _told(error)
        notice(f"actor {actor} is made again: {what}")
        return True

    def revive(self, actor: int) -> None:
        """Count another life of an actor."""
        with self._lock:
            self._revive(actor)

    def succeeded(self, actor: int) -> None:
        """Count an unroll of an actor."""
        self._in_a_row[actor] = 0

    def counts(self) -> dict[str, int]:
        """Failures, restarts and lost unrolls, all at the same moment."""
        with self._lock:
            return {"failures": self.failures, "restarts": self.restarts, "lost": self.lost}

    def _revive(self, actor: int) -> None:
        self.numbers[actor] += 1
        self.restarts += 1


def _told(error: BaseException) -> str:
    """An exception in one line."""
    if isinstance(error, EnvironmentFailed | ActorFailed):
        return error.trace.strip().splitlines()[-1]
    return f"{type(error).__name__}: {error}".splitlines()[0]
