"""Actors of a distributed fleet: vector environments and a policy with the learner's weights."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from sharpwave.collect import EpisodeStats, Rollout, UnrollCollector
from sharpwave.core.finite import check_weights
from sharpwave.distributed.fleet import Unroll, Weights
from sharpwave.envs import (
    environment_state,
    random_state,
    restore_environment_state,
    restore_random_state,
)
from sharpwave.errors import NonFiniteError

__all__ = ["Block", "FleetActor", "Follower"]


class Follower(Protocol):
    """A policy that acts with weights that it is given."""

    def follow_weights(self, weights: Weights) -> None:
        """Act with these weights, from the next unroll on."""

    def state_dict(self) -> dict[str, Any]:
        """State of its random generators, without the weights."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`."""


class Block:
    """The weights of a policy that native code collects with, which draws by itself.

    Args:
        size: Number of weights.
    """

    def __init__(self, size: int) -> None:
        self.weights: Weights = np.zeros(size, np.float32)

    def follow_weights(self, weights: Weights) -> None:
        """Act with these weights, from the next unroll on."""
        self.weights[:] = weights

    def state_dict(self) -> dict[str, Any]:
        """Empty: the collector has the state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to go on from."""


class FleetActor:
    """Environments and a policy, which make one unroll after another.

    Args:
        number: Index of the actor.
        env: The environments.
        collector: Steps them: a `NativeRollouts` or an `UnrollCollector`.
        policy: Policy that the collector acts with.
        gamma: Discount factor.
        closes_env: Close the environments with the actor.
    """

    def __init__(
        self,
        number: int,
        env: Any,
        collector: Any,
        policy: Follower,
        gamma: float,
        *,
        closes_env: bool = True,
    ) -> None:
        self.number = number
        self.env = env
        self._closes_env = closes_env
        self._collector = collector
        self._policy = policy
        self._gamma = gamma
        self._has_begun = False
        # All episodes of an unroll, however short they are; they leave with it.
        collector.episodes = EpisodeStats(env.num_envs, window=None)

    @property
    def may_hang(self) -> bool:
        """True if its environments may hang: those of Python, which native code does not step."""
        return isinstance(self._collector, UnrollCollector)

    def collect(self, weights: Weights, version: int, stops: Callable[[], bool]) -> Unroll | None:
        """Collect an unroll with these weights; None if it was given up, as `stops` became true.

        Raises:
            EnvironmentFailed: An environment raised.
            NonFiniteError: An environment or the weights gave NaN or inf; the actor is named.
        """
        self._has_begun = True
        waits = self.may_hang
        on_step = (lambda *_: not stops()) if waits else None
        try:
            if waits:  # native code looks at them itself
                check_weights(weights, self._collector.timesteps)
            self._policy.follow_weights(weights)
            rollout: Rollout | None = self._collector.collect(self._gamma, 1.0, on_step)
        except NonFiniteError as error:
            raise NonFiniteError(f"actor {self.number}: {error}") from None
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
        if self._closes_env:
            self.env.close()

    def state_dict(self) -> dict[str, Any]:
        """State of the collector, the policy and the environments, for a checkpoint."""
        begun = self._has_begun  # before the first step environments have no state
        return {
            "collector": self._collector.state_dict(),
            "policy": self._policy.state_dict(),
            "env": environment_state(self.env) if begun else None,
            "env_random": random_state(self.env) if begun else None,
        }

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool) -> None:
        """Go on from `state_dict`.

        Args:
            state: State that `state_dict` returned.
            in_flight: The environments are like those of then, and go on where those stood;
                otherwise, and where they did not tell, new episodes begin.
        """
        saved = state["collector"]
        goes_on = in_flight and saved.keys() == self._collector.state_dict().keys()
        goes_on = goes_on and state["env"] is not None
        if goes_on:
            self._has_begun = True
            restore_environment_state(self.env, state["env"])
        elif in_flight and state["env_random"] is not None:
            # Environments of another kind under the same id draw as they are seeded.
            with contextlib.suppress(TypeError):
                restore_random_state(self.env, state["env_random"])
        self._collector.load_state_dict(saved, in_flight=goes_on)
        self._policy.load_state_dict(state["policy"])


def _taken(numbers: deque[Any]) -> list[Any]:
    """Remove the items of a deque and return them."""
    taken = list(numbers)
    numbers.clear()
    return taken
