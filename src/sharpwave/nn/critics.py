"""Critics: Q-functions and value functions of off-policy algorithms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from sharpwave.nn.features import Features, make_features
from sharpwave.nn.mlp import make_mlp
from sharpwave.nn.stacked import StackedMLP

__all__ = ["Critics", "ValueFunction"]


class Critics(nn.Module):
    """Ensemble of n critics Q(s, a), in one batched network.

    They share the convolutions of image observations and nothing else. With `action_dim=0` they
    look at observations alone, and their outputs may stand for the actions.

    Args:
        observation_space: Observation space, one that `make_features` supports.
        action_dim: Size of an action.
        n_critics: n.
        hidden: Sizes of the hidden layers.
        activation: Their activation, by name.
        layer_norm: Layer normalization after every activation.
        batch_norm: Batch renormalization before every layer.
        n_outputs: Numbers per estimate: 1 for a mean, more for quantiles.
        features: Extractor in place of the one that `make_features` makes for the space.
        generator: Source of the weights.

    Example:
        >>> box = spaces.Box(-1.0, 1.0, (3,))
        >>> critics = Critics(box, 2, generator=np.random.default_rng(0))
        >>> critics(torch.zeros(5, 3), torch.zeros(5, 2)).shape
        torch.Size([2, 5])
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_dim: int,
        *,
        n_critics: int = 2,
        hidden: Sequence[int] = (256, 256),
        activation: str = "relu",
        layer_norm: bool = False,
        batch_norm: bool = False,
        n_outputs: int = 1,
        features: Features | None = None,
        generator: np.random.Generator,
    ) -> None:
        super().__init__()
        self.features = features or make_features(observation_space, generator)
        self.net = StackedMLP(
            n_critics,
            self.features.size + action_dim,
            hidden,
            n_outputs,
            activation,
            generator,
            layer_norm=layer_norm,
            batch_norm=batch_norm,
        )
        self._squeeze = n_outputs == 1

    def forward(self, obs: Any, actions: Tensor | None = None, n: int | None = None) -> Tensor:
        """Estimates [n, B], or [n, B, n_outputs], of actions [B, d].

        Args:
            obs: Observations [B, ...].
            actions: [B, d]; None where the outputs are for all actions.
            n: Ask only the first n critics; all when not given.
        """
        return self.of_features(self.features(obs), actions, n)

    def of_features(
        self, features: Tensor, actions: Tensor | None = None, n: int | None = None
    ) -> Tensor:
        """The same of observations that went through `features` already."""
        inputs = features if actions is None else torch.cat((features, actions), -1)
        output: Tensor = self.net(inputs, n)
        return output.squeeze(-1) if self._squeeze else output

    def of_many(self, obs: Any, actions: Tensor) -> Tensor:
        """Values [n, k, B] of k actions [k, B, d] at each of observations [B, ...]."""
        k, size, _ = actions.shape
        features = self.features(obs).expand(k, size, -1).reshape(k * size, -1)
        return self.of_features(features, actions.reshape(k * size, -1)).view(-1, k, size)


class ValueFunction(nn.Module):
    """State-value function V(s).

    Args:
        observation_space: Observation space, one that `make_features` supports.
        hidden: Sizes of the hidden layers.
        activation: Their activation, by name.
        generator: Source of the weights.

    Example:
        >>> value = ValueFunction(spaces.Discrete(4), generator=np.random.default_rng(0))
        >>> value(torch.tensor([0, 3])).shape
        torch.Size([2])
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        *,
        hidden: Sequence[int] = (256, 256),
        activation: str = "relu",
        generator: np.random.Generator,
    ) -> None:
        super().__init__()
        self.features = make_features(observation_space, generator)
        self.net = make_mlp(self.features.size, hidden, 1, activation, generator, head_gain=None)

    def forward(self, obs: Any) -> Tensor:
        """Values [B] of observations [B, ...]."""
        return self.net.fused(self.features(obs)).squeeze(-1)
