"""Networks of rsl_rl's configurations: groups of observations, their statistics, and the spread."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from sharpwave.compat.rsl_rl.settings import ModelSettings
from sharpwave.nn import ActorCritic, RunningNorm
from sharpwave.nn.actor_critic import LEAST_STD
from sharpwave.nn.features import Features
from sharpwave.nn.mlp import make_mlp

__all__ = ["EPS", "Groups", "RobotNorm", "RobotPolicy", "Teacher"]

EPS = 1e-2
"""Added to standard deviations of observations."""


class RobotNorm(RunningNorm):
    """Normalization as rsl_rl has it: (x - mean) / (std + ε) without bounds.

    Args:
        size: Length of the vectors.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Rows [..., size], normalized."""
        scale = (self.var.sqrt() + EPS).to(x.dtype)
        return (x - self.mean.to(x.dtype)) / scale


class Groups(Features):
    """Groups of observations side by side, in a given order.

    Args:
        space: Of all groups.
        names: Of those that are looked at.
        normalizes: They are normalized by running statistics.

    Attributes:
        norm: The statistics; None without.
    """

    def __init__(self, space: spaces.Dict, names: Sequence[str], *, normalizes: bool) -> None:
        super().__init__()
        self.names = list(names)
        self.size = spaces.flatdim(spaces.Dict([(name, space[name]) for name in names]))
        self.norm = RobotNorm(self.size) if normalizes else None

    def joined(self, obs: Any) -> Tensor:
        """Observations [..., size] as the environment has them; a tensor is that already."""
        if isinstance(obs, Tensor):
            return obs
        return torch.cat([obs[name] for name in self.names], -1)

    def forward(self, obs: Any) -> Tensor:
        """Observations [..., size] as the network sees them."""
        joined = self.joined(obs)
        return joined if self.norm is None else self.norm(joined)

    def count(self, obs: Any, weights: Tensor | None, total: Any) -> None:
        """Count observations; see `RunningNorm.count`."""
        if self.norm is not None:
            self.norm.count(self.joined(obs), weights, total)


class RobotPolicy(ActorCritic):
    """An actor and a critic on groups of observations.

    Args:
        space: Of all groups.
        action_space: Of actions.
        sets: Names of the groups of "actor" and "critic".
        actor: The first network.
        critic: The second one.
        generator: Source of the weights.
    """

    def __init__(
        self,
        space: spaces.Dict,
        action_space: spaces.Box,
        sets: Mapping[str, Sequence[str]],
        actor: ModelSettings,
        critic: ModelSettings,
        *,
        generator: np.random.Generator,
    ) -> None:
        looks = Groups(space, sets["actor"], normalizes=actor.normalizes)
        values = Groups(space, sets["critic"], normalizes=critic.normalizes)
        assert actor.std is not None
        super().__init__(
            space,
            action_space,
            critic_space=spaces.Dict({name: space[name] for name in values.names}),
            hidden=actor.widths(looks.size if actor.memory is None else actor.memory_size),
            critic_hidden=critic.widths(values.size if actor.memory is None else actor.memory_size),
            activation=actor.activation,
            log_std_init=math.log(actor.std),
            noise_std_type=actor.std_type,
            recurrent=actor.memory,
            recurrent_size=actor.memory_size,
            ortho_init=False,
            features=looks,
            generator=generator,
        )
        self.critic_features: Groups = values

    @property
    def spread(self) -> Tensor:
        """[d] the standard deviation of actions."""
        if self.std is not None:
            return self.std.detach().clamp(min=LEAST_STD)
        assert self.log_std is not None
        return self.log_std.detach().exp()

    def count(self, obs: Any, weights: Tensor | None = None, total: Any = None) -> None:
        """Count observations in the statistics of both networks."""
        for features in (self.features, self.critic_features):
            features.count(obs, weights, total)


class Teacher(nn.Module):
    """A network that a student learns from.

    Args:
        space: Of all groups of observations.
        names: Of those that it looks at.
        model: The network.
        n_actions: Length of an action.
        generator: Source of the weights, until some are loaded.
    """

    def __init__(
        self,
        space: spaces.Dict,
        names: Sequence[str],
        model: ModelSettings,
        n_actions: int,
        generator: np.random.Generator,
    ) -> None:
        super().__init__()
        self.features = Groups(space, names, normalizes=model.normalizes)
        size = self.features.size
        hidden = model.widths(size)
        self.actor = make_mlp(size, hidden, n_actions, model.activation, generator, None)
        self.requires_grad_(False)

    def forward(self, obs: Any) -> Tensor:
        """Actions [B, n] for observations."""
        actions: Tensor = self.actor(self.features(obs))
        return actions
