"""Actors of a fleet: environments, a policy that follows the learner's, and where both stand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from sharpwave.collect import EpisodeStats, Rollout, UnrollCollector
from sharpwave.distributed.fleet import Unroll, Weights
from sharpwave.envs import environment_state, restore_environment_state

__all__ = ["Block", "FleetActor", "Follower"]


class Follower(Protocol):
    """A policy that acts with weights that it is given."""

    def follow_weights(self, weights: Weights) -> None:
        """Act with these weights, from the next unroll on."""

    def state_dict(self) -> dict[str, Any]:
        """What it draws from, beside the weights."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`."""


class Block:
    """The weights of a policy that native code collects with, which draws by itself.

    Args:
        weights: The first ones.
    """

    def __init__(self, weights: Weights) -> None:
        self.weights = weights.copy()

    def follow_weights(self, weights: Weights) -> None:
        """Act with these weights, from the next unroll on."""
        self.weights[:] = weights

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the collector has it."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to go on from."""


class FleetActor:
    """Environments and a policy, which make one unroll after another.

    Args:
        number: Which actor it is.
        env: The environments; those of number 0 are saved and closed by whoever made them.
        collector: What steps them: a `NativeRollouts` or an `UnrollCollector`.
        policy: What the collector acts with.
        gamma: Discount.
    """

    def __init__(
        self, number: int, env: Any, collector: Any, policy: Follower, gamma: float
    ) -> None:
        self.number = number
        self.env = env
        self._collector = collector
        self._policy = policy
        self._gamma = gamma
        self._has_begun = False
        # All episodes of an unroll, however short they are; they leave with it.
        collector.episodes = EpisodeStats(env.num_envs, window=None)

    def collect(self, weights: Weights, version: int, stops: Callable[[], bool]) -> Unroll | None:
        """One unroll with these weights; None if it was given up, where `stops` became true.

        Raises:
            EnvironmentFailed: An environment raised.
            NonFiniteError: An environment or the weights gave NaN or inf.
        """
        self._has_begun = True
        self._policy.follow_weights(weights)
        # An unroll of native code is over before anybody could wait for it.
        waits = isinstance(self._collector, UnrollCollector)
        on_step = (lambda *_: not stops()) if waits else None
        rollout: Rollout | None = self._collector.collect(self._gamma, 1.0, on_step)
        if rollout is None:
            return None
        episodes = self._collector.episodes
        return Unroll(
            self.number,
            version,
            rollout,
            np.array(_taken(episodes.returns), np.float64),
            np.array(_taken(episodes.lengths), np.int64),
            np.array(_taken(episodes.successes), np.float64),
        )

    def close(self) -> None:
        """End what collects."""
        self._collector.close()
        if self.number:
            self.env.close()

    def state_dict(self) -> dict[str, Any]:
        """Where it stands."""
        has_state = self.number and self._has_begun  # none before the first step
        return {
            "collector": self._collector.state_dict(),
            "policy": self._policy.state_dict(),
            "env": environment_state(self.env) if has_state else None,
        }

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool) -> None:
        """Go on from `state_dict`; in new episodes unless those of then are still there."""
        saved = state["collector"]
        in_flight = in_flight and saved.keys() == self._collector.state_dict().keys()
        if self.number and in_flight:
            in_flight = state["env"] is not None
            if in_flight:
                self._has_begun = True
                restore_environment_state(self.env, state["env"])
        self._collector.load_state_dict(saved, in_flight=in_flight)
        self._policy.load_state_dict(state["policy"])


def _taken(numbers: deque[Any]) -> list[Any]:
    """What was there, and nothing is any more."""
    taken = list(numbers)
    numbers.clear()
    return taken
