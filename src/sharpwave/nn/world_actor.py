"""Policies that act on the states of a world model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn.functional import one_hot

from sharpwave.losses.world_model import unimix
from sharpwave.nn.world_layers import Head
from sharpwave.primitives.world.tensors import draw_classes

__all__ = ["WorldActor"]


class WorldActor(nn.Module):
    """A categorical policy, or a Gaussian one with a mean within [-1, 1].

    Actions are vectors as the model takes them: one-hot where they are discrete.

    Args:
        n_features: Size of what it looks at.
        action_space: Discrete or Box.
        units: Size of the hidden layers.
        layers: Number of these layers.
        share: Share of the uniform distribution in a categorical policy, which keeps trying.
        deviations: Least and largest standard deviation of a Gaussian policy.
        generator: Source of the weights.

    Attributes:
        size: Numbers of an action.

    Raises:
        TypeError: The action space is neither Discrete nor Box.
    """

    def __init__(
        self,
        n_features: int,
        action_space: spaces.Space[Any],
        *,
        units: int,
        layers: int = 3,
        share: float = 0.01,
        deviations: tuple[float, float] = (0.1, 1.0),
        generator: np.random.Generator,
    ) -> None:
        super().__init__()
        self.is_discrete = isinstance(action_space, spaces.Discrete)
        if isinstance(action_space, spaces.Discrete):
            self.size = int(action_space.n)
        elif isinstance(action_space, spaces.Box):
            self.size = int(np.prod(action_space.shape))
        else:
            raise TypeError(f"action_space must be Discrete or Box, got {action_space}")
        self._share, self._deviations = share, deviations
        outputs = self.size if self.is_discrete else 2 * self.size
        self.head = Head(n_features, layers, units, outputs, generator, scale=0.01)

    def act(
        self,
        features: Tensor,
        *,
        deterministic: bool = False,
        masks: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> Tensor:
        """Actions [..., size] at features [..., n_features].

        Args:
            features: Features of the states.
            deterministic: The most likely actions, or the mean.
            masks: [..., size] those that are allowed; None for all.
            noise: [..., size] of `noise`, which samples are made of.
        """
        assert deterministic or noise is not None
        if self.is_discrete:
            logits = self.head(features).float()
            if masks is None and noise is not None and not deterministic:
                return draw_classes(logits.contiguous(), noise, self._share).to(features.dtype)
            log_probs = unimix(logits, self._share)
            if masks is not None:
                log_probs = log_probs.masked_fill(~masks, -torch.inf)
            if noise is not None and not deterministic:
                log_probs = log_probs + noise
            return one_hot(log_probs.argmax(-1), self.size).to(features.dtype)
        mean, deviation = self._gaussian(features)
        actions = mean if deterministic or noise is None else mean + deviation * noise
        return actions.to(features.dtype)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
        """Noise [*shape, size] for as many samples."""
        noise = torch.empty((*shape, self.size), device=self.head.output.weight.device)
        if not self.is_discrete:
            return noise.normal_(generator=generator)
        noise.uniform_(1e-6, 1.0 - 1e-6, generator=generator)
        return noise.log_().neg_().log_().neg_()

    def log_prob_and_entropy(self, features: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities [...] of actions [..., size], and entropies [...]."""
        if self.is_discrete:
            policy = unimix(self.head(features).float(), self._share)
            return (policy * actions).sum(-1), -(policy.exp() * policy).sum(-1)
        mean, deviation = self._gaussian(features)
        spread = deviation.log() + 0.5 * math.log(2.0 * math.pi)
        log_probs = -0.5 * ((actions - mean) / deviation).square() - spread
        return log_probs.sum(-1), (spread + 0.5).sum(-1)

    def _gaussian(self, features: Tensor) -> tuple[Tensor, Tensor]:
        mean, raw = self.head(features).float().chunk(2, -1)
        low, high = self._deviations
        return mean.tanh(), (high - low) * (raw + 2.0).sigmoid() + low
