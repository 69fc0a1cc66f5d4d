"""Actors (policies) of off-policy algorithms: continuous ones in [-1, 1], and a categorical one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from sharpwave.nn.distributions import Categorical, GaussianParams, SquashedGaussian
from sharpwave.nn.features import Features, make_features
from sharpwave.nn.gsde import StateDependentNoise
from sharpwave.nn.mlp import make_mlp

__all__ = ["CategoricalActor", "DeterministicActor", "GaussianActor", "SquashedActor"]

LOG_STD_RANGE = (-20.0, 2.0)


class SquashedActor(nn.Module):
    """Squashed Gaussian policy: tanh of a normal variable that depends on the observation.

    Args:
        observation_space: Observation space, one that `make_features` supports.
        action_dim: Size of an action.
        hidden: Sizes of the hidden layers.
        activation: Their activation, by name.
        gsde: Explore by state-dependent noise, whose deviations are parameters of their own.
        log_std_init: Their first logarithm.
        batch_norm: Batch renormalization before every layer.
        features: Extractor in place of the one that `make_features` makes for the space.
        generator: Source of the weights.

    Example:
        >>> box = spaces.Box(-1.0, 1.0, (3,))
        >>> actor = SquashedActor(box, 2, generator=np.random.default_rng(0))
        >>> actions, log_probs = actor.sample(torch.zeros(5, 3))
        >>> actions.shape, log_probs.shape
        (torch.Size([5, 2]), torch.Size([5]))
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_dim: int,
        *,
        hidden: Sequence[int] = (256, 256),
        activation: str = "relu",
        gsde: bool = False,
        log_std_init: float = -3.0,
        batch_norm: bool = False,
        features: Features | None = None,
        generator: np.random.Generator,
    ) -> None:
        super().__init__()
        self.distribution = SquashedGaussian(action_dim)
        self.features = features or make_features(observation_space, generator)
        size = self.features.size
        outputs = action_dim if gsde else 2 * action_dim
        self.net = make_mlp(
            size, hidden, outputs, activation, generator, head_gain=None, batch_norm=batch_norm
        )
        self.noise = StateDependentNoise(learn_features=True) if gsde else None
        latent = hidden[-1] if hidden else size
        self.log_std = (
            nn.Parameter(torch.full((latent, action_dim), log_std_init)) if gsde else None
        )

    def forward(self, obs: Any) -> GaussianParams:
        """Mean and logarithm of the deviation, [B, d] each, of the variable before the tanh."""
        return self._params(obs)[0]

    def _params(self, obs: Any) -> tuple[GaussianParams, Tensor]:
        features = self.features(obs)
        if self.noise is not None and self.log_std is not None:
            output, latent = self.net.lean_with_latent(features)
            mean = output.clamp(-2.0, 2.0)  # beyond, the tanh leaves no room for noise
            return self.noise.params(mean, latent, self.log_std), latent
        mean, log_std = self.net.fused(features).chunk(2, -1)
        return (mean, log_std.clamp(*LOG_STD_RANGE)), features

    def sample(self, obs: Any, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Actions [B, d] drawn so that gradients flow through them, and log-probabilities [B]."""
        return self.draw(self(obs), generator)

    def draw(
        self,
        params: GaussianParams,
        generator: torch.Generator | None = None,
        n: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """`sample` of what `forward` gave; with `n`, so many of each: [n, B, d] and [n, B]."""
        mean, log_std = params
        shape = mean.shape if n is None else (n, *mean.shape)
        noise = mean.new_empty(shape).normal_(generator=generator)
        raw = mean + log_std.exp() * noise
        return raw.tanh(), self.distribution.log_prob_of_noise(raw, log_std, noise)

    def explore(self, obs: Any, generator: torch.Generator | None = None) -> Tensor:
        """Actions [B, d] drawn alone; nothing is recorded for differentiation."""
        with torch.no_grad():
            mean, log_std = self(obs)
            noise = torch.empty_like(mean).normal_(generator=generator)
            return torch.addcmul(mean, log_std.exp(), noise).tanh_()

    def explore_smoothly(self, obs: Any) -> Tensor:
        """Actions [n, d] with the noise that `reset_noise` drew for n environments."""
        if self.noise is None:
            raise TypeError("explore_smoothly needs gsde=True")
        with torch.no_grad():
            params, latent = self._params(obs)
            return (params[0] + self.noise.noise(params, latent)).tanh_()

    def mode(self, obs: Any) -> Tensor:
        """The most likely actions before squashing, squashed: [B, d]."""
        with torch.no_grad():
            mean: Tensor = self(obs)[0]
            return mean.tanh()

    def reset_noise(self, n: int, generator: torch.Generator | None = None) -> None:
        """Draws new gSDE exploration matrices for `n` environments; without `gsde` does nothing."""
        if self.noise is not None and self.log_std is not None:
            self.noise.reset(self.log_std, n, generator)


class CategoricalActor(nn.Module):
    """Categorical policy over n discrete actions.

    Args:
        observation_space: Observation space, one that `make_features` supports.
        n_actions: n.
        hidden: Sizes of the hidden layers.
        activation: Their activation, by name.
        generator: Source of the weights.

    Example:
        >>> box = spaces.Box(-1.0, 1.0, (3,))
        >>> actor = CategoricalActor(box, 2, generator=np.random.default_rng(0))
        >>> actor(torch.zeros(5, 3)).exp().sum(1).round().tolist()
        [1.0, 1.0, 1.0, 1.0, 1.0]
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        n_actions: int,
        *,
        hidden: Sequence[int] = (256, 256),
        activation: str = "relu",
        generator: np.random.Generator,
    ) -> None:
        super().__init__()
        self.distribution = Categorical(n_actions)
        self.features = make_features(observation_space, generator)
        self.net = make_mlp(
            self.features.size, hidden, n_actions, activation, generator, head_gain=None
        )

    def forward(self, obs: Any, masks: Tensor | None = None) -> Tensor:
        """Log-probabilities [B, n]; those of actions that masks [B, n] forbid are -1e8."""
        logits = self.net.fused(self.features(obs))
        if masks is not None:
            logits = self.distribution.mask(logits, masks)
        return logits.log_softmax(-1)

    def explore(
        self, obs: Any, masks: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """Actions [B] drawn by their probability."""
        with torch.no_grad():
            return self.distribution.sample(self(obs, masks), generator)

    def mode(self, obs: Any, masks: Tensor | None = None) -> Tensor:
        """The most likely actions, [B]."""
        with torch.no_grad():
            return self.distribution.mode(self(obs, masks))


class DeterministicActor(nn.Module):
    """Deterministic policy: one action for each observation, the tanh of a network.

    Args:
        observation_space: Observation space, one that `make_features` supports.
        action_dim: Size of an action.
        hidden: Sizes of the hidden layers.
        activation: Their activation, by name.
        features: Extractor in place of the one that `make_features` makes for the space.
        generator: Source of the weights.

    Example:
        >>> box = spaces.Box(-1.0, 1.0, (3,))
        >>> actor = DeterministicActor(box, 2, generator=np.random.default_rng(0))
        >>> actor(torch.zeros(5, 3)).shape
        torch.Size([5, 2])
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_dim: int,
        *,
        hidden: Sequence[int] = (256, 256),
        activation: str = "relu",
        features: Features | None = None,
        generator: np.random.Generator,
    ) -> None:
        super().__init__()
        self.features = features or make_features(observation_space, generator)
        self.net = make_mlp(
            self.features.size, hidden, action_dim, activation, generator, head_gain=None
        )

    def forward(self, obs: Any) -> Tensor:
        """Actions [B, d] in [-1, 1]."""
        return self.net.fused(self.features(obs)).tanh()

    def mode(self, obs: Any) -> Tensor:
        """The same, without differentiation."""
        with torch.no_grad():
            actions: Tensor = self(obs)
            return actions


class GaussianActor(DeterministicActor):
    """Gaussian policy around the tanh of a network, with one deviation for all observations.

    Args:
        observation_space: Observation space, one that `make_features` supports.
        action_dim: Size of an action.
        hidden: Sizes of the hidden layers.
        activation: Their activation, by name.
        generator: Source of the weights.

    Attributes:
        log_std: [d] logarithm of the deviation.

    Example:
        >>> box = spaces.Box(-1.0, 1.0, (3,))
        >>> actor = GaussianActor(box, 2, generator=np.random.default_rng(0))
        >>> actor.log_prob(torch.zeros(5, 3), torch.zeros(5, 2)).shape
        torch.Size([5])
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_dim: int,
        *,
        hidden: Sequence[int] = (256, 256),
        activation: str = "relu",
        generator: np.random.Generator,
    ) -> None:
        super().__init__(
            observation_space,
            action_dim,
            hidden=hidden,
            activation=activation,
            generator=generator,
        )
        self.log_std = nn.Parameter(torch.zeros(action_dim))

    def log_prob(self, obs: Any, actions: Tensor) -> Tensor:
        """Log-probabilities [B] of actions [B, d]."""
        log_std = self.log_std.clamp(*LOG_STD_RANGE)
        noise = (actions - self.forward(obs)) * (-log_std).exp()
        constant = 0.5 * math.log(2 * math.pi) * actions.shape[-1]
        return -0.5 * noise.square().sum(-1) - log_std.sum() - constant

    def explore(self, obs: Any, generator: torch.Generator | None = None) -> Tensor:
        """Actions [B, d] drawn, and clipped to [-1, 1]."""
        with torch.no_grad():
            mean = self.forward(obs)
            noise = torch.empty_like(mean).normal_(generator=generator)
            std = self.log_std.clamp(*LOG_STD_RANGE).exp()
            return torch.addcmul(mean, std, noise).clamp_(-1.0, 1.0)
