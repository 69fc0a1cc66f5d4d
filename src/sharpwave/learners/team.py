"""The agents of a group, of a learner that has one rule for all agents of a team."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sharpwave.core.lazy import nn, torch
from sharpwave.envs import ActionMap
from sharpwave.learners.learner import Acted

if TYPE_CHECKING:
    from gymnasium import spaces

    from sharpwave.collect.joint import GroupView

__all__ = ["Team", "TeamMember"]


@dataclass(frozen=True)
class Team:
    """The agents of a team as its learner sees them.

    Attributes:
        views: Inputs of the network of each group.
        observation_spaces: Of one agent, by group.
        action_spaces: Of one agent, by group.
    """

    views: dict[str, GroupView]
    observation_spaces: dict[str, spaces.Space[Any]]
    action_spaces: dict[str, spaces.Space[Any]]

    @property
    def sizes(self) -> dict[str, int]:
        """Number of agents of each group."""
        return {name: view.n_agents for name, view in self.views.items()}


class TeamMember:
    """A group of a team, which acts by its own network, as a learner does.

    Args:
        learner: The learner of the team.
        name: The group.

    Attributes:
        view: Inputs of its network.
        action_map: From its actions to those of the environment.
        explore_generator: Source of the random numbers of actions.
    """

    state = None

    def __init__(self, learner: Any, name: str) -> None:
        self.learner, self.name = learner, name
        self.view = learner.team.views[name]
        space = learner.team.action_spaces[name]
        self.action_map = ActionMap(space)
        self.branches = nn.Branches(space)
        self.explore_generator = learner.explore_generator
        self.is_random = learner.is_random
        self.inputs, self.own, self.array = learner.inputs, learner.own, learner.array

    @property
    def network(self) -> Any:
        """The Q-network of the group."""
        return self.learner.policy.by_group[self.name]

    def inference(self) -> contextlib.AbstractContextManager[Any]:
        """A context to act in: nothing is kept for gradients."""
        context: contextlib.AbstractContextManager[Any] = self.learner.inference()
        return context

    def initial_state(self, n_envs: int) -> Any:
        """Memory [k, n_envs, size] of so many agents as their lives begin; None without one."""
        network = self.network
        if not hasattr(network, "initial_state"):
            return None
        return network.initial_state(n_envs).transpose(0, 1)

    def begin_rollout(self, n_envs: int) -> None:
        """Nothing to prepare."""

    def act(
        self, obs: Any, *, explore: bool, state: Any = None, starts: Any = None, masks: Any = None
    ) -> Acted:
        """Actions [B] of agents of the group, greedy or with probability ε random."""
        network, generator = self.network, self.explore_generator
        if explore:
            network.reset_noise(generator)
        else:
            network.remove_noise()
        if state is None:
            values = network(obs)
        else:
            values, state = network.step(obs, state.transpose(0, 1), starts)
            state = state.transpose(0, 1)
        best = self.branches.greedy(values, masks)
        if not explore:
            return Acted(best, state=state)
        draws = torch.rand(len(best), 1 + self.branches.n, generator=generator, device=best.device)
        random = self.branches.greedy(draws[:, 1:], masks)
        chosen = torch.where(draws[:, 0] < self.learner.epsilon, random, best)
        return Acted(chosen, state=state)
