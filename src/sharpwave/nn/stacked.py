"""Several networks of the same form, run as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from sharpwave.layouts.init import fan_in_uniform, orthogonal
from sharpwave.nn.batch_renorm import BatchRenorm
from sharpwave.nn.fused import can_fuse, fused_mlp
from sharpwave.nn.mlp import ACTIVATIONS, check_sizes

__all__ = ["Scalar", "StackedLinear", "StackedMLP"]

_NORM_EPS = 1e-6
"""Added to the variance of a layer; ReBRAC's code has this one."""


class StackedLinear(nn.Module):
    """n linear layers of the same size in one batched product.

    Args:
        n: Number of layers.
        in_features: Size of the input.
        out_features: Size of the output.
        generator: Source of the weights, which are uniform as torch's layers begin.

    Attributes:
        weight: [n, in, out], the transpose of `nn.Linear`'s.
        bias: [n, 1, out].
    """

    def __init__(
        self, n: int, in_features: int, out_features: int, generator: np.random.Generator
    ) -> None:
        super().__init__()
        shape = (n, in_features, out_features)
        weight = fan_in_uniform(generator, shape, in_features)
        bias = fan_in_uniform(generator, (n, 1, out_features), in_features)
        self.weight = nn.Parameter(torch.from_numpy(weight))
        self.bias = nn.Parameter(torch.from_numpy(bias))

    def forward(self, x: Tensor) -> Tensor:
        """[m, B, in] to [m, B, out] by the first m layers."""
        weight: Tensor = self.weight
        bias: Tensor = self.bias
        if len(x) < len(weight):
            weight, bias = weight[: len(x)], bias[: len(x)]
        if weight.shape[-1] == 1:  # a product this narrow takes ten times as long
            return (x * weight.mT).sum(-1, keepdim=True).add_(bias)
        return torch.bmm(x, weight).add_(bias)  # baddbmm would copy the bias first


class StackedMLP(nn.Module):
    """n multi-layer perceptrons of the same form in one batched product per layer.

    Args:
        n: Number of networks.
        in_features: Size of the input.
        hidden: Sizes of the hidden layers.
        out_features: Size of the output.
        activation: A name in `ACTIVATIONS`, applied after every layer but the last.
        generator: Source of the weights.
        layer_norm: Layer normalization after every activation.
        batch_norm: Batch renormalization before every layer.

    Raises:
        ValueError: The activation is unknown or a size is not positive.

    Example:
        >>> net = StackedMLP(2, 3, (64, 64), 1, "relu", np.random.default_rng(0))
        >>> net(torch.zeros(5, 3)).shape
        torch.Size([2, 5, 1])
    """

    def __init__(
        self,
        n: int,
        in_features: int,
        hidden: Sequence[int],
        out_features: int,
        activation: str,
        generator: np.random.Generator,
        *,
        layer_norm: bool = False,
        batch_norm: bool = False,
    ) -> None:
        super().__init__()
        check_sizes(in_features, hidden, activation)
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        self.n = n
        sizes = [in_features, *hidden, out_features]
        self.layers = nn.ModuleList(
            StackedLinear(n, size, next_size, generator) for size, next_size in pairwise(sizes)
        )
        self.norms = nn.ModuleList(
            _StackedLayerNorm(n, size) for size in (hidden if layer_norm else ())
        )
        self.batch_norms = nn.ModuleList(
            BatchRenorm(size, n) for size in (sizes[:-1] if batch_norm else ())
        )
        self.activation = ACTIVATIONS[activation]()

    def forward(self, x: Tensor, n: int | None = None) -> Tensor:
        """[B, in] for all networks, or [n, B, in] for each its own, to [n, B, out].

        Args:
            x: The input.
            n: Run only the first n networks; all when not given.
        """
        n = n or self.n
        if not self.norms and not self.batch_norms and can_fuse(x, self.activation):
            layers: list[Any] = list(self.layers)
            weights = [layer.weight if n == self.n else layer.weight[:n] for layer in layers]
            biases = [layer.bias if n == self.n else layer.bias[:n] for layer in layers]
            return fused_mlp(x, weights, biases, self.activation, n)
        if x.ndim == 2:
            x = x.expand(n, *x.shape)
        last = len(self.layers) - 1
        for i, layer in enumerate(self.layers):
            if self.batch_norms:
                x = self.batch_norms[i](x)
            x = layer(x)
            if i < last:
                x = self.activation(x)
                if self.norms:
                    x = self.norms[i](x)
        return x

    def orthogonal_(
        self, generator: np.random.Generator, gain: float = math.sqrt(2), head_gain: float = 1.0
    ) -> None:
        """Gives all layers orthogonal weights and zero biases.

        Args:
            generator: Source of the weights.
            gain: Gain of the hidden layers.
            head_gain: Gain of the last layer.
        """
        layers: list[Any] = list(self.layers)
        for layer in layers:
            layer_gain = head_gain if layer is layers[-1] else gain
            for weight, bias in zip(layer.weight.data, layer.bias.data, strict=True):
                drawn = orthogonal(generator, tuple(weight.T.shape), layer_gain)
                weight.copy_(torch.from_numpy(drawn).T)
                bias.zero_()


class _StackedLayerNorm(nn.Module):
    """Layer normalization with n sets of scales and shifts."""

    def __init__(self, n: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n, 1, size))
        self.bias = nn.Parameter(torch.zeros(n, 1, size))

    def forward(self, x: Tensor) -> Tensor:
        """[m, B, size] to the same by the first m."""
        weight, bias = self.weight[: len(x)], self.bias[: len(x)]
        return torch.addcmul(bias, layer_norm(x, x.shape[-1:], eps=_NORM_EPS), weight)


class Scalar(nn.Module):
    """One number that is learned.

    Args:
        value: Its start.
    """

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.tensor(float(value)))
