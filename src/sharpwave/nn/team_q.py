"""Q-networks of the groups of a team, and the value of what all of them choose."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import accumulate, pairwise
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from sharpwave.core.tree import leaves, map_leaves
from sharpwave.nn.q_networks import Branches

__all__ = ["TeamQNetwork"]


class TeamQNetwork(nn.Module):
    """The Q-networks of several groups of agents with the mixer of their values.

    It takes observations as `JointVectorEnv` gives them.

    Args:
        networks: The `QNetwork` or `RecurrentQNetwork` of each group, whose inputs are observations
            [B, ...], or Dicts of them as `obs` with the numbers of the agents [B] as `agent`.
        sizes: Number of agents of each group.
        with_ids: The groups whose network is told which agent it acts for.
        mixer: From the values [B, A] of what the agents chose, 0 for those that do not act, and
            states to [B].
        state: From observations to states [B, ...]; None where the mixer needs none.

    Attributes:
        branches: The actions of all agents, side by side.
        columns: Those of each group.

    Example:
        >>> import numpy as np
        >>> from sharpwave.nn import QNetwork, SumMixer
        >>> box, generator = spaces.Box(-1.0, 1.0, (2,)), np.random.default_rng(0)
        >>> one = QNetwork(box, spaces.Discrete(5), generator=generator)
        >>> team = TeamQNetwork({"agent": one}, {"agent": 3}, SumMixer())
        >>> obs = {"agents": {"agent": torch.zeros(7, 3, 2)}, "acts": torch.ones(7, 3)}
        >>> values = team(obs)
        >>> values.shape, team.mix(values[:, ::5], obs).shape
        (torch.Size([7, 15]), torch.Size([7]))
    """

    def __init__(
        self,
        networks: Mapping[str, Any],
        sizes: Mapping[str, int],
        mixer: nn.Module,
        *,
        with_ids: Collection[str] = (),
        state: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.sizes = {name: sizes[name] for name in networks}
        begins = (0, *accumulate(self.sizes.values()))
        self.columns = {x: slice(*at) for x, at in zip(self.sizes, pairwise(begins), strict=True)}
        # Names of groups may hold what names of modules must not.
        self.networks = nn.ModuleList(networks.values())
        self.with_ids = frozenset(with_ids)
        self.mixer, self.state = mixer, state
        widths = [x.branches.n for name, x in networks.items() for _ in range(sizes[name])]
        self.branches = Branches(spaces.MultiDiscrete(widths))

    def forward(self, obs: Mapping[str, Any]) -> Tensor:
        """Values [B, n] of the actions of all agents, side by side."""
        values = []
        for name, network in self.by_group.items():
            rows, n = self._rows(name, obs)
            values.append(network(rows).reshape(n, -1))
        return torch.cat(values, 1)

    def step(self, obs: Mapping[str, Any], state: Mapping[str, Any]) -> tuple[Tensor, Any]:
        """The same of networks with memory, and the next memory: that of agents that act.

        Args:
            obs: The observations.
            state: [B, G, ...] the memory, by group.
        """
        values, after = [], {}
        for name, network in self.by_group.items():
            rows, n = self._rows(name, obs)
            flags = (obs[x][:, self.columns[name]].bool().flatten() for x in ("begins", "acts"))
            found, memory = network.step(rows, state[name].flatten(0, 1), *flags)
            values.append(found.reshape(n, -1))
            after[name] = memory.unflatten(0, (n, -1))
        return torch.cat(values, 1), after

    def unroll(self, obs: Mapping[str, Any]) -> Tensor:
        """Values [T, B, n] of sequences [T, B, ...] that begin without memory."""
        values = []
        length, n = obs["begins"].shape[:2]
        flat = map_leaves(lambda x: x.flatten(0, 1), obs)
        for name, network in self.by_group.items():
            rows, _ = self._rows(name, flat)
            rows = map_leaves(lambda x: x.unflatten(0, (length, -1)), rows)
            flags = (obs[x][..., self.columns[name]].bool().flatten(1) for x in ("begins", "acts"))
            values.append(network.unroll(rows, *flags).reshape(length, n, -1))
        return torch.cat(values, 2)

    def initial_state(self, n: int) -> dict[str, Tensor]:
        """The memory [n, G, ...] of the agents of each group in n environments."""
        return {
            name: network.initial_state(n * self.sizes[name]).unflatten(0, (n, -1))
            for name, network in self.by_group.items()
        }

    @property
    def by_group(self) -> dict[str, Any]:
        """The network of each group."""
        return dict(zip(self.sizes, self.networks, strict=True))

    def _rows(self, name: str, obs: Mapping[str, Any]) -> tuple[Any, int]:
        """Inputs of the network of a group, of agents of N environments side by side, and N."""
        _, leaf = next(leaves(obs["agents"][name]))
        rows = map_leaves(lambda x: x.flatten(0, 1), obs["agents"][name])
        if name not in self.with_ids:
            return rows, len(leaf)
        numbers = torch.arange(self.sizes[name], device=leaf.device).repeat(len(leaf))
        return {"obs": rows, "agent": numbers}, len(leaf)

    def mix(self, values: Tensor, obs: Mapping[str, Any]) -> Tensor:
        """[B] values of the team, from those [B, A] of what its agents chose."""
        state = None if self.state is None else self.state(obs)
        mixed: Tensor = self.mixer(values * obs["acts"], state)
        return mixed

    def reset_noise(self, generator: torch.Generator | None = None) -> None:
        """Draws new noise for networks that have some."""
        for network in self.by_group.values():
            network.reset_noise(generator)

    def remove_noise(self) -> None:
        """Leaves the weights as they are without noise."""
        for network in self.by_group.values():
            network.remove_noise()
