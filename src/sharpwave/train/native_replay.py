"""Agents that learn from replay in native code: what stands where torch modules stand elsewhere."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from gymnasium import spaces

from sharpwave.learn import Adam, Features, FlatArrays, QActor, QLayout, QLearner, features_of
from sharpwave.types import Array

__all__ = ["NativeAgent", "NativeQ"]

Actor = TypeVar("Actor")


class NativeAgent(Generic[Actor]):
    """Networks, their optimisers, and what acts.

    Args:
        observation_space: A space that `learn.why_not_native` has nothing against.

    Attributes:
        features: From observations [B, ...] to inputs [B, n].
        networks: Parameters by the name of the network.
        optimizers: By the name of the network that they move.
        policy: The parameters of the network that acts.
    """

    networks: dict[str, FlatArrays]
    optimizers: dict[str, Adam]
    policy: FlatArrays

    def __init__(self, observation_space: spaces.Space[Any]) -> None:
        self.features: Features = features_of(observation_space)
        self._actors: dict[FlatArrays, Actor] = {}

    def actor(self, policy: FlatArrays) -> Actor:
        """What acts with the parameters of a network."""
        if policy not in self._actors:
            self._actors[policy] = self.make_actor(policy)
        return self._actors[policy]

    def make_actor(self, policy: FlatArrays) -> Actor:
        """A new one."""
        raise NotImplementedError


class NativeQ(NativeAgent[QActor]):
    """A Q-network and its slow copy.

    Args:
        observation_space: Of the agent.
        action_space: Of the agent.
        layout: The network.
        flat: Its parameters.
        adam_eps: ε of the optimiser.
        threads: Most threads of a step.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        layout: QLayout,
        flat: FlatArrays,
        *,
        adam_eps: float,
        threads: int,
    ) -> None:
        super().__init__(observation_space)
        self._layout = layout
        self._one_choice = isinstance(action_space, spaces.Discrete)
        self.policy = flat
        self.target = flat.copy()
        self.networks = {"q_network": flat, "target": self.target}
        adam = Adam(flat, lr=0.0, eps=adam_eps)
        self.optimizers = {"q_network": adam}
        self.learner = QLearner(layout, flat, adam, self.target, threads=threads)

    def make_actor(self, policy: FlatArrays) -> QActor:
        """What acts with the parameters of a network."""
        return QActor(self._layout, policy)

    def as_actions(self, choices: Array) -> Array:
        """Choices [B, k] as actions: [B] where there is one."""
        return choices[:, 0] if self._one_choice else choices
