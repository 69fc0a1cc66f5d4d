"""The interface of multi-agent vector environments: copies of one environment, stepped at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from sharpwave.types import Array, Flags, Nested

__all__ = ["GroupStep", "MultiAgentVectorEnv", "MultiStep"]


class GroupStep(NamedTuple):
    """One step of the G agents of a group in N environments.

    After a reset the rewards are zero and the flags of ends False.
    """

    obs: Nested
    """Observations to act on next, [N, G, ...]; zeros for an agent that is gone."""
    next_obs: Nested
    """Observations that the actions led to, [N, G, ...]: the true last one where something ended.
    The same object as `obs` where they do not differ."""
    rewards: npt.NDArray[np.float64]
    """[N, G] of this step; zero for an agent that was gone already."""
    terminated: Flags
    """[N, G], True in the one step that ended the agent's life."""
    truncated: Flags
    """[N, G], True in the one step that cut the agent's life."""
    alive: Flags
    """[N, G], True where the agent acts next. An agent that waits for its turn is False here and
    comes back without an end in between; its rewards meanwhile are those of its last action."""
    masks: Flags | None
    """[N, G, n] actions allowed next (all where the agent does not act); None where all are."""


@dataclass(frozen=True, eq=False)
class MultiStep:
    """One step of every environment, or the beginning after a reset."""

    groups: Mapping[str, GroupStep]
    """Steps of the groups, by name."""
    state: Array | None
    """[N, S], or [N, A, S] where each of all A agents has its own, to act on next; None without."""
    next_state: Array | None
    """The state that the actions led to, the true last one where an episode ended. The same object
    as `state` where they do not differ."""
    ended: Flags
    """[N] where the episode ended, as no agent was left, and another one has begun."""
    infos: Sequence[Mapping[str, Any]]
    """Infos of each environment, by agent; at the end of an episode the last step's are in
    "final_info" beside those of the reset."""


class MultiAgentVectorEnv(ABC):
    """N copies of one multi-agent environment.

    Agents are grouped: those of a group have the same spaces, share a network unless told
    otherwise, and lie beside each other in arrays [N, G, ...]. An episode ends when no agent is
    left, and the next one begins in the same step.

    Attributes:
        num_envs: N.
        agents: All agents that there may be, in order.
        groups: The agents of each group by its name, in the order of their rows.
        observation_spaces: Of one agent, by group.
        action_spaces: Of one agent, by group.
        state_space: Of the state that a critic may look at, or of that of one agent where each has
            its own; None where there is none.
    """

    metadata: ClassVar[dict[str, Any]] = {}
    resets_apart = False
    """True if the step after the end of an episode only resets, and nobody acts in it."""
    num_envs: int
    agents: tuple[str, ...]
    groups: Mapping[str, tuple[str, ...]]
    observation_spaces: Mapping[str, spaces.Space[Any]]
    action_spaces: Mapping[str, spaces.Space[Any]]
    state_space: spaces.Space[Any] | None

    @abstractmethod
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> MultiStep:
        """Begin new episodes everywhere.

        Args:
            seed: Environment i gets seed + i; None goes on with the environments' own generators.
            options: For every environment.
        """

    @abstractmethod
    def step(self, actions: Mapping[str, Any]) -> MultiStep:
        """Step all environments.

        Args:
            actions: [N, G, ...] by group; those of agents that do not act are ignored.
        """

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Close all environments."""

    @property
    def single_observation_space(self) -> spaces.Dict:
        """The observation spaces of all groups."""
        return spaces.Dict(dict(self.observation_spaces))

    @property
    def single_action_space(self) -> spaces.Dict:
        """The action spaces of all groups."""
        return spaces.Dict(dict(self.action_spaces))

    @property
    def unwrapped(self) -> MultiAgentVectorEnv:
        """The environment itself."""
        return self
