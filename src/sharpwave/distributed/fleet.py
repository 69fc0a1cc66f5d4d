"""The interface of actor fleets for distributed algorithms: unrolls, weights and statistics."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from sharpwave.collect import Rollout
from sharpwave.core.tree import leaves

__all__ = ["Fleet", "FleetStats", "Unroll", "Weights", "waiting_states"]

Weights = npt.NDArray[np.float32]
"""[n_parameters] all parameters of a policy, as a flat vector that nobody changes any more."""

OF_STEPS = (
    "obs",
    "actions",
    "log_probs",
    "rewards",
    "terminated",
    "truncated",
    "starts",
    "valid",
    "masks",
    "extra",
    "last_obs",
    "final_obs",
    "state",
)
"""Columns of a rollout that a learner takes."""
OF_EPISODES = ("episode_returns", "episode_lengths", "successes")


@dataclass(frozen=True, eq=False)
class Unroll:
    """Steps of an actor's environments with one version of the weights (a trajectory segment).

    Attributes:
        actor: The number of the actor.
        version: Number of updates that its weights had seen.
        rollout: The steps, with `last_obs`.
        episode_returns: [E] of the episodes that ended.
        episode_lengths: [E] of them.
        successes: Success (1 or 0) of each episode, of those of which that is known.
    """

    actor: int
    version: int
    rollout: Rollout
    episode_returns: npt.NDArray[np.float64]
    episode_lengths: npt.NDArray[np.int64]
    successes: npt.NDArray[np.float64]

    def columns(self) -> dict[str, Any]:
        """All that a learner takes, by name: arrays, nested as the environment's."""
        of_steps = {name: getattr(self.rollout, name) for name in OF_STEPS}
        kept = {name: column for name, column in of_steps.items() if column is not None}
        return {**kept, **{name: getattr(self, name) for name in OF_EPISODES}}

    @classmethod
    def of_columns(cls, actor: int, version: int, columns: dict[str, Any]) -> Unroll:
        """The unroll of some `columns`; the values that the actor estimated are NaN.

        Raises:
            TypeError: A name is missing or unknown.
        """
        of_episodes = {name: columns[name] for name in OF_EPISODES if name in columns}
        of_steps = {name: x for name, x in columns.items() if name not in of_episodes}
        return cls(actor, version, Rollout.without_values(**of_steps), **of_episodes)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of its columns."""
        columns = self.columns().values()  # most of them are arrays, and this is asked for each
        return sum(
            column.nbytes
            if isinstance(column, np.ndarray)
            else sum(leaf.nbytes for _, leaf in leaves(column))
            for column in columns
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything, as arrays and numbers."""
        return {"actor": self.actor, "version": self.version, "columns": self.columns()}

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Unroll:
        """The unroll that `state_dict` described.

        Raises:
            TypeError: A name is missing or unknown.
        """
        return cls.of_columns(**state)


def waiting_states(unrolls: Iterable[Unroll]) -> list[dict[str, Any]]:
    """The states of unrolls that wait, in an order that does not depend on who was faster."""
    ordered = sorted(unrolls, key=lambda unroll: (unroll.version, unroll.actor))
    return [unroll.state_dict() for unroll in ordered]


class FleetStats(NamedTuple):
    """Counts of a fleet's actors, unrolls and failures."""

    actors: int
    """Number of actors that there should be."""
    alive: int
    """Number of actors that are there."""
    asked: int
    """Number of unrolls that are asked for and not begun."""
    busy: int
    """Number of actors in the midst of an unroll."""
    waiting: int
    """Number of finished unrolls that nobody has received."""
    failures: int
    """Number of failures of actors: exceptions, and processes that ended."""
    restarts: int = 0
    """Number of restarts: actors that were made again after a failure."""
    lost: int = 0
    """Number of unrolls that were lost with an actor."""
    received_bytes: int = 0
    """Bytes of all unrolls that were received."""
    may_join: bool = False
    """True if actors may still join by themselves, even where none is there."""

    @property
    def in_flight(self) -> int:
        """Unrolls that will come without anything more."""
        return self.asked + self.busy + self.waiting


class Fleet(Protocol):
    """Actors at work, somewhere, with weights that arrive."""

    def start(self, weights: Weights, version: int) -> None:
        """Let the actors begin, with these weights."""

    def publish(self, weights: Weights, version: int) -> None:
        """Give the weights of the unrolls that begin from now on."""

    def receive(self, timeout: float) -> Unroll | None:
        """The oldest unroll; None if there was none in so many seconds.

        Raises:
            Exception: The error of an actor that is not made again, as it was raised there.
        """

    def pause(self, timeout: float = math.inf) -> None:
        """Wait until all actors rest between two unrolls, where `start` finds them.

        Args:
            timeout: Seconds after which nobody waits any more for unrolls that take longer.
        """

    def stats(self) -> FleetStats:
        """Counts of actors, unrolls, failures and received bytes."""

    def state_dict(self) -> dict[str, Any]:
        """State of the actors at rest, and waiting unrolls, for a checkpoint."""

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool) -> None:
        """Go on from `state_dict`; in new episodes unless those of then are still there."""

    def stop(self, timeout: float = 5.0) -> None:
        """End the actors."""
