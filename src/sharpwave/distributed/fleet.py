"""The interface of fleets: what an actor-learner algorithm sees, whatever is behind it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from sharpwave.collect import Rollout

__all__ = ["Fleet", "FleetStats", "Unroll", "Weights"]

Weights = npt.NDArray[np.float32]
"""[n_parameters] all parameters of a policy, which nobody changes any more."""


@dataclass(frozen=True, eq=False)
class Unroll:
    """Some steps of an actor.

    Attributes:
        actor: The number of the actor.
        version: Updates that its weights had seen.
        rollout: The steps, with `last_obs`.
        episode_returns: [E] of the episodes that ended.
        episode_lengths: [E] of them.
        successes: Whether they reached their goals, of those of which that is known.
    """

    actor: int
    version: int
    rollout: Rollout
    episode_returns: npt.NDArray[np.float64]
    episode_lengths: npt.NDArray[np.int64]
    successes: npt.NDArray[np.float64]

    def state_dict(self) -> dict[str, Any]:
        """Everything, as arrays and numbers."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        columns = {field.name: getattr(self.rollout, field.name) for field in fields(Rollout)}
        kept = {name: column for name, column in columns.items() if column is not None}
        return {**own, "rollout": kept}

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Unroll:
        """The unroll that `state_dict` described.

        Raises:
            TypeError: A name is missing or unknown.
        """
        return cls(**{**state, "rollout": Rollout(**state["rollout"])})


class FleetStats(NamedTuple):
    """Where a fleet stands."""

    actors: int
    """How many there should be."""
    alive: int
    """How many there are."""
    asked: int
    """Unrolls that are asked for and not begun."""
    busy: int
    """How many are in the midst of an unroll."""
    waiting: int
    """Unrolls that nobody has received."""
    failures: int
    """Unrolls that an exception ended."""

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
            Exception: What ended an unroll of an actor, as it was raised there.
        """

    def pause(self) -> None:
        """Wait until all actors rest between two unrolls, where `start` finds them."""

    def stats(self) -> FleetStats:
        """Where it stands."""

    def state_dict(self) -> dict[str, Any]:
        """Where the actors stand at rest, and what waits."""

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool) -> None:
        """Go on from `state_dict`; in new episodes unless those of then are still there."""

    def stop(self, timeout: float = 5.0) -> None:
        """End the actors."""
