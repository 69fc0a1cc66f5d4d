"""Random network: what random network distillation learns to predict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sharpwave.nn.features import Features
from sharpwave.nn.mlp import make_mlp
from sharpwave.nn.running_norm import RunningNorm

__all__ = ["RandomNetwork"]


class RandomNetwork(nn.Module):
    """A multi-layer perceptron that never learns, on features of observations.

    Args:
        features: Extractor.
        hidden: Widths of the hidden layers.
        size: Number of outputs.
        activation: Activation of the hidden layers.
        generator: Source of the weights.
        normalize: Normalize the features by running statistics.
    """

    def __init__(
        self,
        features: Features,
        hidden: Sequence[int],
        size: int,
        activation: str,
        generator: np.random.Generator,
        *,
        normalize: bool,
    ) -> None:
        super().__init__()
        self.features = features
        self.norm: Any = RunningNorm(features.size) if normalize else None
        self.network = make_mlp(features.size, hidden, size, activation, generator, None)
        self.requires_grad_(False)

    def forward(self, obs: Any) -> tuple[Tensor, Tensor]:
        """The features [..., features.size] of observations, and the outputs [..., size]."""
        inputs = self.features(obs)
        if self.norm is not None:
            inputs = self.norm(inputs)
        return inputs, self.network(inputs)

    @torch.no_grad()
    def count(self, obs: Any, weights: Tensor | None = None, total: Any = None) -> None:
        """Counts observations; see `RunningNorm.count`."""
        if self.norm is not None:
            self.norm.count(self.features(obs), weights, total)
