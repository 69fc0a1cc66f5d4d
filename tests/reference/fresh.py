"""Windows that are handed out once, in plain Python: cut every stream, and remember where."""

from __future__ import annotations

from sharpwave import Sequence, Transition
from tests.reference.replay import ReplayOracle


class FreshOracle:
    """The queue of fresh windows of a buffer.

    Args:
        oracle: What the buffer holds.
    """

    def __init__(self, oracle: ReplayOracle) -> None:
        self.oracle = oracle
        self.seen = [-1] * oracle.streams  # the last id of each environment that is passed
        self.taken = [0] * oracle.streams

    def next_window(self, env: int, view: Sequence | Transition) -> tuple[int, int] | None:
        """The first and the last step of the next window."""
        steps = [step for step in self.oracle.steps(env) if step.id > self.seen[env]]
        for i, step in enumerate(steps):
            if isinstance(view, Transition):
                return step.id, step.id
            if self.oracle.may_draw(step.id, view):
                rows = (
                    [row[0] for row in self.oracle.arrivals(step, view) if row is not None]
                    if view.arrivals
                    else [row for row in self.oracle.window(step, view) if row is not None]
                )
                return step.id, rows[-1].id
            if not view.cross and i > 0 and not steps[i - 1].last:
                continue  # behind one of the same episode that does not fit
        return None

    def take(self, n: int, view: Sequence | Transition) -> list[int]:
        """The first steps of at most n windows."""
        found: list[int] = []
        while len(found) < n:
            turns = [
                (self.taken[env], env, window)
                for env in range(self.oracle.streams)
                if (window := self.next_window(env, view)) is not None
            ]
            if not turns:
                break
            _, env, (first, last) = min(turns)
            found.append(first)
            self.taken[env] += 1
            self.seen[env] = last
        return found
