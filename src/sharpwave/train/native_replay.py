"""Agents that learn from replay in native code: what stands where torch modules stand elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from gymnasium import spaces

from sharpwave.learn import (
    ActorLayout,
    Adam,
    CriticsLayout,
    DeterministicActor,
    Features,
    FlatArrays,
    QActor,
    QLayout,
    QLearner,
    SACLearner,
    SquashedActor,
    TD3Learner,
    features_of,
)
from sharpwave.types import Array

__all__ = ["NativeAgent", "NativeQ", "NativeSAC", "NativeTD3"]

Actor = TypeVar("Actor")


class NativeAgent(ABC, Generic[Actor]):
    """Networks, their optimisers, and what acts.

    Args:
        observation_space: A space that `learn.why_not_native` has nothing against.

    Attributes:
        features: From observations [B, ...] to inputs [B, n].
        networks: Parameters by the name of the network.
        optimizers: By the name of the network that they move.
        acting: The name of the network that acts.
    """

    networks: dict[str, FlatArrays]
    optimizers: dict[str, Adam]
    acting: str = "actor"

    def __init__(self, observation_space: spaces.Space[Any]) -> None:
        self.features: Features = features_of(observation_space)
        self._actors: dict[FlatArrays, Actor] = {}

    @property
    def policy(self) -> FlatArrays:
        """The parameters of the network that acts."""
        return self.networks[self.acting]

    def actor(self, policy: FlatArrays) -> Actor:
        """What acts with the parameters of a network."""
        if policy not in self._actors:
            self._actors[policy] = self.make_actor(policy)
        return self._actors[policy]

    @abstractmethod
    def make_actor(self, policy: FlatArrays) -> Actor:
        """A new one."""


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

    acting = "q_network"

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
        self.target = flat.copy()
        self.networks = {"q_network": flat, "target": self.target}
        adam = Adam(flat, lr=0.0, eps=adam_eps)
        self.optimizers = {"q_network": adam}
        self.learner = QLearner(
            layout, flat, adam, self.target, features=self.features, threads=threads
        )

    def make_actor(self, policy: FlatArrays) -> QActor:
        """What acts with the parameters of a network."""
        return QActor(self._layout, policy)

    def as_actions(self, choices: Array) -> Array:
        """Choices [B, k] as actions: [B] where there is one."""
        return choices[:, 0] if self._one_choice else choices


class NativeSAC(NativeAgent[SquashedActor]):
    """An actor whose actions are drawn, critics with their slow copy, and the weight of entropy.

    Args:
        observation_space: Of the agent.
        actor_layout: The actor.
        critics_layout: The critics.
        actor: Parameters of the actor.
        critics: Parameters of the critics.
        log_alpha: First logarithm of the weight of entropy.
        threads: Most threads of a step.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        actor_layout: ActorLayout,
        critics_layout: CriticsLayout,
        actor: FlatArrays,
        critics: FlatArrays,
        *,
        log_alpha: float,
        threads: int,
    ) -> None:
        super().__init__(observation_space)
        self._layout = actor_layout
        targets = critics.copy()
        temperature = FlatArrays({"value": ()})
        temperature.data[:] = log_alpha
        learned = {"actor": actor, "critics": critics, "temperature": temperature}
        self.networks = {**learned, "target_critics": targets}
        self.optimizers = {name: Adam(flat, lr=0.0, eps=1e-8) for name, flat in learned.items()}
        self.learner = SACLearner(
            actor_layout,
            critics_layout,
            actor=(actor, self.optimizers["actor"]),
            critics=(critics, self.optimizers["critics"]),
            temperature=(temperature, self.optimizers["temperature"]),
            targets=targets,
            features=self.features,
            threads=threads,
        )

    def make_actor(self, policy: FlatArrays) -> SquashedActor:
        """What acts with the parameters of a network."""
        return SquashedActor(self._layout, policy)


class NativeTD3(NativeAgent[DeterministicActor]):
    """An actor that knows one action for each observation, critics, and slow copies of all.

    Args:
        observation_space: Of the agent.
        actor_layout: The actor.
        critics_layout: The critics.
        actor: Parameters of the actor.
        critics: Parameters of the critics.
        threads: Most threads of a step.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        actor_layout: ActorLayout,
        critics_layout: CriticsLayout,
        actor: FlatArrays,
        critics: FlatArrays,
        *,
        threads: int,
    ) -> None:
        super().__init__(observation_space)
        self._layout = actor_layout
        learned = {"actor": actor, "critics": critics}
        slow = {f"target_{name}": flat.copy() for name, flat in learned.items()}
        self.networks = {**learned, **slow}
        self.optimizers = {name: Adam(flat, lr=0.0, eps=1e-8) for name, flat in learned.items()}
        self.learner = TD3Learner(
            actor_layout,
            critics_layout,
            actor=(actor, self.optimizers["actor"]),
            critics=(critics, self.optimizers["critics"]),
            target_actor=slow["target_actor"],
            target_critics=slow["target_critics"],
            features=self.features,
            threads=threads,
        )

    def make_actor(self, policy: FlatArrays) -> DeterministicActor:
        """What acts with the parameters of a network."""
        return DeterministicActor(self._layout, policy)
