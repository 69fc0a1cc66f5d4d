"""Mixers: the value of a team's actions, from those of its agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn.functional import elu

from sharpwave.nn.features import make_features
from sharpwave.nn.mlp import initialize_uniform

__all__ = ["JointFeatures", "JointState", "MonotonicMixer", "SumMixer"]


class SumMixer(nn.Module):
    """The sum of the agents' values (Sunehag et al., 2018).

    Example:
        >>> SumMixer()(torch.tensor([[1.0, 2.0]]), None).tolist()
        [3.0]
    """

    def forward(self, values: Tensor, state: Tensor | None) -> Tensor:  # noqa: ARG002
        """[B] from the values [B, A] of agents."""
        return values.sum(1)


class MonotonicMixer(nn.Module):
    r"""A network that never falls where the value of an agent rises (Rashid et al., 2018).

    $$Q = |W_2(s)|^\top \operatorname{elu}(|W_1(s)| q + b_1(s)) + b_2(s)$$

    Its weights are outputs of networks of the state $s$ (hypernetworks). Since it is monotonic, the
    best actions of the team are those that are best for each agent alone.

    Args:
        state_space: Of what the weights depend on.
        n_agents: A.
        size: Length of the hidden layer.
        hidden: Length of the hidden layer of the hypernetworks.
        generator: Source of the weights.

    Example:
        >>> box = spaces.Box(-1.0, 1.0, (4,))
        >>> mixer = MonotonicMixer(box, 3, size=8, hidden=16, generator=np.random.default_rng(0))
        >>> mixer(torch.zeros(5, 3), torch.zeros(5, 4)).shape
        torch.Size([5])
    """

    def __init__(
        self,
        state_space: spaces.Space[Any],
        n_agents: int,
        *,
        size: int,
        hidden: int,
        generator: np.random.Generator,
    ) -> None:
        super().__init__()
        self.features = make_features(state_space, generator)
        n = self.features.size
        self.first = nn.Sequential(
            nn.Linear(n, hidden), nn.ReLU(), nn.Linear(hidden, n_agents * size)
        )
        self.first_bias = nn.Linear(n, size)
        self.second = nn.Sequential(nn.Linear(n, hidden), nn.ReLU(), nn.Linear(hidden, size))
        self.second_bias = nn.Sequential(nn.Linear(n, size), nn.ReLU(), nn.Linear(size, 1))
        for part in (self.first, self.first_bias, self.second, self.second_bias):
            initialize_uniform(part, generator)

    def forward(self, values: Tensor, state: Tensor) -> Tensor:
        """[B] from the values [B, A] of agents and states [B, ...]."""
        seen = self.features(state)
        first = self.first(seen).abs().unflatten(1, (values.shape[1], -1))
        hidden = elu(torch.einsum("ba,bah->bh", values, first) + self.first_bias(seen))
        mixed = (hidden * self.second(seen).abs()).sum(1)
        value: Tensor = mixed + self.second_bias(seen).squeeze(1)
        return value


class JointFeatures(nn.Module):
    """The features of the observations of all agents, side by side.

    Args:
        observation_spaces: Of one agent, by group.
        sizes: Number of agents of each group.
        generator: Source of weights, of which vectors need none.

    Attributes:
        space: Of what it gives.
    """

    def __init__(
        self,
        observation_spaces: Mapping[str, spaces.Space[Any]],
        sizes: Mapping[str, int],
        generator: np.random.Generator,
    ) -> None:
        super().__init__()
        self._names = list(observation_spaces)
        every = [make_features(space, generator) for space in observation_spaces.values()]
        self.features = nn.ModuleList(every)
        width = sum(one.size * sizes[name] for name, one in zip(self._names, every, strict=True))
        self.space = spaces.Box(-np.inf, np.inf, (width,), np.float32)

    def forward(self, obs: Mapping[str, Any]) -> Tensor:
        """[B, S] of observations as `JointVectorEnv` gives them."""
        parts = (
            features(obs["agents"][name]).flatten(1)
            for name, features in zip(self._names, self.features, strict=True)
        )
        return torch.cat(tuple(parts), 1)


class JointState(nn.Module):
    """The state of the environment, as `JointVectorEnv` gives it."""

    def forward(self, obs: Mapping[str, Any]) -> Tensor:
        """[B, ...]."""
        state: Tensor = obs["state"]
        return state
