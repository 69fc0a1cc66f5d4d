"""Forecast of the throughput, policy lag and bottleneck of actors and a learner."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Forecast"]

HOLDS = 4
"""Policy lag, in updates, up to which V-trace has been seen to learn as well as without lag."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A fleet and its learner, and what follows from their sizes and times.

    Lag is Little's law: an unroll waits for as many updates as the steps in flight are worth.
    Unrolls are received while the learner learns, which slows both: what they take together is
    measured, and not derived from what each takes alone.

    Example:
        >>> forecast = Forecast(
        ...     n_actors=1000, n_envs=16, n_steps=80, batch_unrolls=2, n_nodes=50,
        ...     unroll_seconds=0.1, update_seconds=0.01, taken_seconds=6e-3,
        ...     unroll_bytes=46_000, weights_bytes=20_000,
        ... )
        >>> forecast.lag, forecast.limit, round(forecast.steps_per_second)
        (500.0, 'the learner', 213333)
    """

    n_actors: int
    """Number of actors of all machines."""
    n_envs: int
    """Number of environments of each actor."""
    n_steps: int
    """Number of steps of each environment in an unroll."""
    batch_unrolls: int
    """Number of unrolls in the batch of an update."""
    n_nodes: int
    """Number of machines of actors: weights go once to each."""
    unroll_seconds: float
    """Seconds in which an actor makes an unroll."""
    update_seconds: float
    """Seconds in which the learner learns from a batch, with nothing beside it."""
    taken_seconds: float
    """Seconds in which the learner takes an unroll, from nodes that send at once and while it
    learns, its share of the update included; 0 where nothing travels."""
    unroll_bytes: int
    """Bytes of an unroll on the wire."""
    weights_bytes: int
    """Bytes of all weights."""

    @property
    def batch_steps(self) -> int:
        """Environment steps of an update."""
        return self.batch_unrolls * self.n_envs * self.n_steps

    @property
    def lag(self) -> float:
        """Policy lag: updates that the weights of an unroll will have missed."""
        return self.n_actors / self.batch_unrolls

    @property
    def actor_rate(self) -> float:
        """Environment steps per second of all actors, with nothing to wait for."""
        return self.n_actors * self.n_envs * self.n_steps / self.unroll_seconds

    @property
    def learner_rate(self) -> float:
        """Environment steps per second that the learner takes."""
        return self.batch_steps / max(self.update_seconds, self._taking_seconds)

    @property
    def _taking_seconds(self) -> float:
        return self.batch_unrolls * self.taken_seconds

    @property
    def steps_per_second(self) -> float:
        """Environment steps per second of the whole."""
        return min(self.actor_rate, self.learner_rate)

    @property
    def limit(self) -> str:
        """Bottleneck of the whole: the actors, the learner or the wire."""
        if self.actor_rate < self.learner_rate:
            return "the actors"
        # The wire is, where a learner does something else than to learn for most of its time.
        return "the wire" if self._taking_seconds > 2 * self.update_seconds else "the learner"

    @property
    def actors_kept_busy(self) -> int:
        """Number of actors that keep the learner busy."""
        return max(1, math.ceil(self.n_actors * min(1.0, self.learner_rate / self.actor_rate)))

    @property
    def received_per_second(self) -> float:
        """Bytes of unrolls per second."""
        return self.steps_per_second / (self.n_envs * self.n_steps) * self.unroll_bytes

    @property
    def sent_per_second(self) -> float:
        """Bytes of weights per second, to all nodes."""
        return self.steps_per_second / self.batch_steps * self.weights_bytes * self.n_nodes

    def verdict(self) -> str:
        """Sentence on whether V-trace will hold at this lag, and what to use otherwise."""
        flight = (
            f"{self.n_actors:,} x {self.n_envs:,} x {self.n_steps:,} in flight over a batch of "
            f"{self.batch_steps:,} is a lag of {self.lag:,.4g}"
        )
        if self.lag <= HOLDS:
            return f"{flight}: V-trace will hold"
        enough = math.ceil(self.n_actors / HOLDS)
        bound = HOLDS * self.batch_unrolls
        return (
            f"{flight}: V-trace will not hold; use batch_unrolls={enough:,} or more, or "
            f"max_in_flight={bound:,}, at which {self.n_actors - bound:,} actors would rest: "
            f"{min(bound, self.n_actors):,} actors are then enough"
        )
