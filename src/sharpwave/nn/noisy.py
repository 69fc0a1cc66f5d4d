"""Noisy linear layers, which explore by learned noise on their weights."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from sharpwave.layouts.init import fan_in_uniform

__all__ = ["NoisyLinear"]


class NoisyLinear(nn.Module):
    r"""A linear layer with factorized Gaussian noise on its weights (Fortunato et al., 2018).

    $$y = (W + \Sigma \odot f(\epsilon) f(\epsilon')^T)\, x + b + \sigma \odot f(\epsilon),
    \qquad f(x) = \mathrm{sign}(x) \sqrt{|x|}$$

    with $\epsilon$ and $\epsilon'$ normal, one number for each output and each input. How strong
    the noise is, is learned. It stays until the next `reset_noise` or `remove_noise`; there is none
    at first.

    Args:
        in_features: Size of the input.
        out_features: Size of the output.
        generator: Source of the weights, which are uniform as torch's layers begin.
        sigma: Strength of the noise at first, over the square root of `in_features`.

    Attributes:
        weight: [out, in] W.
        bias: [out] b.
        weight_sigma: [out, in] Σ.
        bias_sigma: [out] σ.

    Example:
        >>> layer = NoisyLinear(3, 2, np.random.default_rng(0))
        >>> x = torch.ones(1, 3)
        >>> quiet = layer(x)
        >>> layer.reset_noise(torch.Generator().manual_seed(0))
        >>> bool((layer(x) != quiet).all())
        True
    """

    _noise: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        generator: np.random.Generator,
        sigma: float = 0.5,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        shape = (out_features, in_features)
        start = sigma / math.sqrt(in_features)
        self.weight = _parameter(fan_in_uniform(generator, shape, in_features))
        self.bias = _parameter(fan_in_uniform(generator, shape[:1], in_features))
        self.weight_sigma = nn.Parameter(torch.full(shape, start))
        self.bias_sigma = nn.Parameter(torch.full(shape[:1], start))
        self.register_buffer("_noise", torch.zeros(in_features + out_features), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] to [..., out]."""
        # A copy, so that new noise may come before the backward pass.
        noise = self._noise.clone()
        of_inputs, of_outputs = noise.split((self.in_features, self.out_features))
        weight = torch.addcmul(self.weight, self.weight_sigma, torch.outer(of_outputs, of_inputs))
        return linear(x, weight, torch.addcmul(self.bias, self.bias_sigma, of_outputs))

    def reset_noise(self, generator: torch.Generator | None = None) -> None:
        """Draws new noise.

        Args:
            generator: Source of the draws; None is torch's global one.
        """
        normal = torch.empty_like(self._noise).normal_(generator=generator)
        torch.copysign(normal.abs().sqrt_(), normal, out=self._noise)

    def remove_noise(self) -> None:
        """Leaves the weights as they are without noise."""
        self._noise.zero_()


def _parameter(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> nn.Parameter:
    return nn.Parameter(torch.from_numpy(values))
