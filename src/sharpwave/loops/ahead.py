"""Rollouts of the next updates, made in a thread while a language model learns."""

from __future__ import annotations

import copy
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from sharpwave.core.lazy import llm

if TYPE_CHECKING:
    from sharpwave.llm import Written
    from sharpwave.loops.prompts import PromptLoop

__all__ = ["Ahead"]


class _Rollout(NamedTuple):
    """The completions of an update, and the numbers of prompts and random keys drawn up to it."""

    written: Written
    prompts_drawn: int
    keys_drawn: int
    seconds: dict[str, float]


class Ahead:
    """Makes rollouts one after another, in order, each with weights of a version that is settled.

    With a staleness k, the rollout of update u is written by the weights before update u - k, those
    of the first k updates by the weights at the start. It begins as soon as these are there, so
    nothing that it takes, however long, makes it another one: a run is repeatable bit for bit.

    The weights of the last k versions are kept in k copies. Copy number u modulo k holds those
    before update u, from then on until the rollout of update u + k has come: then it is free for
    the weights before that update.

    Args:
        loop: The loop that takes the rollouts; its counters follow those that it was given.
        staleness: Updates by which weights may be older than those that learn.
        device: Device of the copies; that of the model when None.
    """

    def __init__(self, loop: PromptLoop, staleness: int, device: str | None) -> None:
        self._loop, self._staleness, self._device = loop, staleness, device
        # It draws prompts, samples and scores as the loop does, and counts for itself.
        self._scout = copy.copy(loop)
        self._scout.timings = dict.fromkeys(loop.timings, 0.0)
        self._keys_drawn = loop.sampler.drawn
        self._followers: list[Any] = []
        self._coming: deque[Future[_Rollout]] = deque()
        self._count = 0
        self._pool = ThreadPoolExecutor(1, "sharpwave rollouts")

    def next(self, n_left: int) -> Written:
        """The rollout of the update that comes now; those of later ones are under way.

        Args:
            n_left: Updates until the run ends, this one included: no rollouts are made beyond.

        Raises:
            Exception: Whatever was raised in the thread, as it was raised there.
        """
        if not self._coming:
            self._count = 0
            first = self._follower(0)
            for _ in range(min(self._staleness, n_left)):
                self._begin(first)
        rollout = self._coming.popleft().result()
        if n_left > self._staleness:
            self._begin(self._follower(self._count))
        self._count += 1
        loop = self._loop
        loop.drawn, loop.sampler.drawn = rollout.prompts_drawn, rollout.keys_drawn
        for name, seconds in rollout.seconds.items():
            loop.timings[name] += seconds
        return rollout.written

    def close(self) -> None:
        """Wait for what is under way, drop the rest, and end the thread."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _follower(self, number: int) -> Any:
        """A copy that has the weights of now: of the n-th update since the start."""
        place = number % self._staleness
        if place == len(self._followers):
            self._followers.append(llm.follower_of(self._loop.sampler, self._device))
        if number or not self._coming:
            self._followers[place].take(self._loop.learner.updates)
        return self._followers[place]

    def _begin(self, follower: Any) -> None:
        self._coming.append(self._pool.submit(self._make, follower))

    def _make(self, follower: Any) -> _Rollout:
        scout = self._scout
        before = dict(scout.timings)
        scout.sampler = follower
        follower.drawn = self._keys_drawn
        written = scout.collect()
        self._keys_drawn = follower.drawn
        seconds = {name: scout.timings[name] - x for name, x in before.items()}
        return _Rollout(written, scout.drawn, self._keys_drawn, seconds)
