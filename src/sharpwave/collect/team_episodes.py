"""Returns of whole episodes of several agents."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from sharpwave.collect.episodes import EpisodeStats, episode_metrics

__all__ = ["TeamStats"]


class TeamStats(EpisodeStats):
    """Returns and lengths of the episodes that N environments of several agents finished.

    The return of a team is the mean of its agents' returns, of those that learn.

    Args:
        n_envs: N.
        groups: The agents of each group by its name.
        window: Number of the last episodes that are kept.
        learning: The groups that learn; None for all.

    Attributes:
        agents: All agents, in the order of the groups.
        learns: [A] True where they learn.
        agent_returns: Returns of the last episodes of each agent.

    Example:
        >>> stats = TeamStats(1, {"agent": ("agent_0", "agent_1")})
        >>> stats.update_agents(np.array([[1.0, 3.0]]), np.array([True]))
        >>> stats.mean_return, stats.mean_of("agent_1")
        (2.0, 3.0)
    """

    def __init__(
        self,
        n_envs: int,
        groups: Mapping[str, Sequence[str]],
        window: int | None = 100,
        *,
        learning: Collection[str] | None = None,
    ) -> None:
        super().__init__(n_envs, window)
        self.groups = {name: tuple(agents) for name, agents in groups.items()}
        self.agents = tuple(agent for agents in self.groups.values() for agent in agents)
        self.agent_returns: dict[str, deque[float]] = {
            agent: deque(maxlen=window) for agent in self.agents
        }
        learning = self.groups if learning is None else learning
        self.learns = np.array([x in learning for x, agents in self.groups.items() for _ in agents])
        self._running_agents = np.zeros((n_envs, len(self.agents)), np.float64)

    def update_agents(
        self,
        rewards: npt.NDArray[Any],
        ended: npt.NDArray[np.bool_],
        valid: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """Add one step of every environment.

        Args:
            rewards: [N, A] of all agents, in the order of `agents`.
            ended: [N], where the step was an episode's last.
            valid: [N], False where the row was only a reset; None when all are steps.
        """
        self._running_agents += rewards
        if np.count_nonzero(ended):
            self.add_agents(self._running_agents[ended])
            self._running_agents[ended] = 0
        self.update(self.team_rewards(rewards), ended, valid)

    def team_rewards(self, rewards: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The rewards [N] of teams, from those [N, A] of their agents."""
        own = rewards if self.learns.all() else rewards[:, self.learns]
        mean: npt.NDArray[Any] = own.mean(1)
        return mean

    def add_agents(self, returns: npt.NDArray[Any]) -> None:
        """Add the returns [E, A] of the agents in whole episodes."""
        for agent, column in zip(self.agents, returns.T.tolist(), strict=True):
            self.agent_returns[agent].extend(column)

    def mean_of(self, name: str) -> float:
        """Mean return of an agent or a group in the last episodes, nan before the first ended."""
        agents = self.groups.get(name, (name,))
        returns = [fmean(kept) for kept in map(self.agent_returns.get, agents) if kept]
        return fmean(returns) if returns else float("nan")

    def metrics(self) -> dict[str, float]:
        """The measures of the last episodes, by name: of the team, of each group and agent."""
        names = self.agents if len(self.agents) > 1 else ()
        if len(self.groups) > 1:
            names = tuple(dict.fromkeys((*self.groups, *names)))
        return {
            **episode_metrics(self),
            **{f"mean_return/{name}": self.mean_of(name) for name in names},
        }

    def restart(self) -> None:
        """Forget the episodes in flight: the environments were reset."""
        super().restart()
        self._running_agents[:] = 0

    def state_dict(self) -> dict[str, Any]:
        """Everything, as arrays and numbers."""
        returns = [np.array(self.agent_returns[agent], np.float64) for agent in self.agents]
        return {
            **super().state_dict(),
            "agent_returns": np.stack(returns, 1),
            "running_agents": self._running_agents.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        super().load_state_dict(state)
        for kept in self.agent_returns.values():
            kept.clear()
        self.add_agents(state["agent_returns"])
        if len(state["running_agents"]) == len(self._running_agents):
            self._running_agents[:] = state["running_agents"]
