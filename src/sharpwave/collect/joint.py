"""Inputs of the policy and the critic of a group, from a step of a multi-agent environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from sharpwave.envs.multi.vector import MultiAgentVectorEnv
from sharpwave.layouts.features import features_of, n_features
from sharpwave.types import Array, Nested

__all__ = ["CRITIC_INPUTS", "CriticInput", "GroupView", "JointView"]

CriticInput = Literal["auto", "state", "concat", "agent", "obs"]
CRITIC_INPUTS = ("auto", "state", "concat", "agent", "obs")


class JointView:
    """Joint input of the critics of all groups, once for each environment.

    Args:
        env: The environments.
        kind: "state" is that of the environment, "concat" the observations of all agents side by
            side, "agent" the same (each agent's own is moved to the front where it is used), and
            "obs" nothing: critics look at what the actors look at. "auto" is "concat" where all
            observations can lie side by side, otherwise "state", or "obs" where there is none.

    Attributes:
        kind: What "auto" stands for here, or the argument.
        space: Of one environment, or of one agent where each has its own state; None for nothing.

    Raises:
        ValueError: There is no state, or the observations cannot be put side by side.

    Example:
        >>> from sharpwave.envs.multi import make_multi_env
        >>> env = make_multi_env("mpe2/simple_spread_v3", 2)
        >>> step = env.reset(seed=0)
        >>> view = JointView(env, "concat")
        >>> view.of({"agent": step.groups["agent"].obs}, step.state).shape
        (2, 54)
    """

    def __init__(self, env: MultiAgentVectorEnv, kind: CriticInput) -> None:
        alone = len(env.agents) == 1
        if kind == "auto":
            kind = "concat" if alone or _are_vectors(env) else "state"
            kind = "obs" if kind == "state" and env.state_space is None else kind
        self.kind = kind
        self.space: spaces.Space[Any] | None = None
        self._groups = env.groups
        self._numbers = {
            name: [env.agents.index(agent) for agent in agents]
            for name, agents in env.groups.items()
        }
        if kind == "state":
            if env.state_space is None:
                raise ValueError(
                    "critic_input must be 'concat', 'agent' or 'obs' here, got 'state': the "
                    "environment has none"
                )
            self.space = env.state_space
        elif kind in ("concat", "agent") and not alone:
            self._places = self._side_by_side(env)
            width = max(place.stop for place in self._places.values())
            self.space = spaces.Box(-np.inf, np.inf, (width,), np.float32)

    def _side_by_side(self, env: MultiAgentVectorEnv) -> dict[str, slice]:
        """The slice of each agent in the observations of all agents side by side."""
        group_of = {agent: name for name, agents in env.groups.items() for agent in agents}
        try:
            widths = {name: n_features(one) for name, one in env.observation_spaces.items()}
        except TypeError as error:
            raise ValueError(
                f"critic_input must be 'state' or 'obs' here, got {self.kind!r}: {error}"
            ) from error
        self._features = {name: features_of(one) for name, one in env.observation_spaces.items()}
        places, start = {}, 0
        for agent in env.agents:
            places[agent] = slice(start, start := start + widths[group_of[agent]])
        return places

    def of(self, obs: Mapping[str, Nested], state: Array | None) -> Array | None:
        """Rows [N, ...] of some observations [N, G, ...] by group and states."""
        if self.kind == "state":
            return state
        if self.space is None:
            return None
        n_envs = len(_first_leaf(next(iter(obs.values()))))
        joint = np.empty((n_envs, *(self.space.shape or ())), np.float32)
        for name, agents in self._groups.items():
            rows = self._features[name](flat_rows(obs[name])).reshape(n_envs, len(agents), -1)
            for i, agent in enumerate(agents):
                joint[:, self._places[agent]] = rows[:, i]
        return joint

    def of_group(self, joint: Array | None, group: str) -> Array | None:
        """The rows of a group: [N, ...], or [N * G, ...] where each agent has its own state."""
        if joint is None or self.space is None or joint.shape[1:] == self.space.shape:
            return joint
        return flat_rows(joint[:, self._numbers[group]])  # type: ignore[no-any-return]

    def own_first(self, group: str) -> npt.NDArray[np.intp] | None:
        """[G, S] the order in which the critic of each agent has the numbers.

        None where it is that in which they lie.
        """
        if self.kind != "agent" or self.space is None:
            return None
        everything = np.arange(max(place.stop for place in self._places.values()))
        orders = []
        for agent in self._groups[group]:
            own = everything[self._places[agent]]
            orders.append(np.concatenate((own, np.setdiff1d(everything, own))))
        return np.stack(orders)


def _are_vectors(env: MultiAgentVectorEnv) -> bool:
    """Return whether the observations of all agents can lie side by side."""
    try:
        for space in env.observation_spaces.values():
            n_features(space)
    except TypeError:
        return False
    return True


class GroupView:
    """Inputs of the learner of a group: observations, agent ids and the input of the critic.

    Args:
        env: The environments.
        group: The group.
        joint: The input of its critic.
        agent_id: Tell a shared policy which agent it acts for.

    Attributes:
        observation_space: Of the actor.
        critic_space: Of the critic; None where it looks at what the actor looks at.
        n_agents: G.
        is_plain: True where the learner takes observations as they are.
    """

    def __init__(
        self, env: MultiAgentVectorEnv, group: str, joint: JointView, *, agent_id: bool
    ) -> None:
        self.observation_space = env.observation_spaces[group]
        self.n_agents = len(env.groups[group])
        self.critic_space: spaces.Dict | None = None
        self.own_first = joint.own_first(group)
        self.is_plain = joint.space is None and not (agent_id and self.n_agents > 1)
        if not self.is_plain:
            entries: dict[str, spaces.Space[Any]] = {"obs": self.observation_space}
            if agent_id and self.n_agents > 1:
                entries["agent"] = spaces.Discrete(self.n_agents)
            self.observation_space = spaces.Dict(entries)
        if joint.space is not None:
            self.critic_space = spaces.Dict({"joint": joint.space})

    def why_not_native(self) -> str | None:
        """Why native code cannot look at what the critic looks at; None when it can."""
        if self.critic_space is None:
            return None
        try:
            n_features(self.critic_space)
        except TypeError as error:
            return str(error)
        return None

    def inputs(self, obs: Any, agents: Any, joint: Any) -> Any:
        """Rows as the learner takes them.

        Args:
            obs: [B, ...] observations.
            agents: [B] the number of each row's agent in the group.
            joint: [B, ...], or [N, ...] where N environments have G rows each; None for no critic.
        """
        if self.is_plain:
            return obs
        seen = {"obs": obs, "agent": agents}
        return seen if joint is None else {**seen, "joint": joint}


def flat_rows(tree: Any) -> Any:
    """[N, G, ...] as [N * G, ...]."""
    if isinstance(tree, dict):
        return {key: flat_rows(inner) for key, inner in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map(flat_rows, tree))
    return tree.reshape(-1, *tree.shape[2:])


def _first_leaf(tree: Any) -> Any:
    while isinstance(tree, dict | tuple):
        tree = next(iter(tree.values())) if isinstance(tree, dict) else tree[0]
    return tree
