"""Layers of world models: normalized, block-wise, of convolutions, and heads."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from sharpwave.layouts.init import truncated_normal
from sharpwave.primitives.world.tensors import has_native_layers, head, layer, linear

__all__ = ["BlockLinear", "Conv", "Head", "Layer", "RMSNorm", "TruncatedLinear"]


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + ε) times a learned scale, computed in float32.

    Args:
        size: Size of the axis.
        axis: Axis that is normalized.
    """

    def __init__(self, size: int, axis: int = -1) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        self._axis, self._eps = axis, 1e-4

    def forward(self, x: Tensor) -> Tensor:
        """The normalized numbers, of the dtype of the input."""
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(self._axis, keepdim=True) + self._eps)
        scale = self.scale if self._axis == -1 else self.scale[:, None, None]
        return (y * scale).to(x.dtype)


class TruncatedLinear(nn.Linear):
    """A linear layer with truncated normal weights and a bias of zeros.

    Args:
        inputs: Size of the input.
        outputs: Size of the output.
        generator: Source of the weights.
        scale: Scale of the initial weights; 0 for zeros.
    """

    def __init__(
        self, inputs: int, outputs: int, generator: np.random.Generator, scale: float = 1.0
    ) -> None:
        super().__init__(inputs, outputs)
        weight = truncated_normal(generator, (outputs, inputs), inputs, scale)
        with torch.no_grad():
            self.weight.copy_(torch.from_numpy(weight))
            self.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """[..., outputs]."""
        return linear(x, self.weight, self.bias)


class BlockLinear(nn.Module):
    """A linear layer whose outputs see one block of the inputs each.

    Args:
        inputs: Size of the input, of all blocks.
        outputs: Size of the output, of all blocks.
        blocks: Number of blocks; both sizes are multiples of it.
        generator: Source of the weights.
    """

    def __init__(
        self, inputs: int, outputs: int, blocks: int, generator: np.random.Generator
    ) -> None:
        super().__init__()
        self.blocks = blocks
        shape = blocks, inputs // blocks, outputs // blocks
        # As published the inputs of all blocks count, although an output sees those of one.
        self.weight = nn.Parameter(torch.from_numpy(truncated_normal(generator, shape, inputs)))
        self.bias = nn.Parameter(torch.zeros(blocks, 1, outputs // blocks))

    def forward(self, x: Tensor) -> Tensor:
        """From [blocks, B, inputs / blocks] to [blocks, B, outputs / blocks]."""
        return torch.baddbmm(self.bias, x, self.weight)


class Layer(nn.Module):
    """Linear, RMS normalization, SiLU.

    Args:
        inputs: Size of the input.
        outputs: Size of the output.
        generator: Source of the weights.
    """

    def __init__(self, inputs: int, outputs: int, generator: np.random.Generator) -> None:
        super().__init__()
        self.linear = TruncatedLinear(inputs, outputs, generator)
        self.norm = RMSNorm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """[..., outputs]."""
        return layer(x, self.linear.weight, self.linear.bias, self.norm.scale)


class Head(nn.Module):
    """Some layers, and a linear one.

    Args:
        inputs: Size of the input.
        layers: Number of hidden layers.
        units: Their size.
        outputs: Size of the output.
        generator: Source of the weights.
        scale: Scale of the initial weights of the output; 0 for zeros.
    """

    def __init__(
        self,
        inputs: int,
        layers: int,
        units: int,
        outputs: int,
        generator: np.random.Generator,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        sizes = [inputs, *[units] * layers]
        self.hidden = nn.Sequential(*(Layer(a, b, generator) for a, b in pairwise(sizes)))
        self.output = TruncatedLinear(sizes[-1], outputs, generator, scale)

    def forward(self, x: Tensor) -> Tensor:
        """[..., outputs]."""
        is_native = not torch.is_grad_enabled() and has_native_layers(x, self.output.weight)
        if is_native and (weights := self.weights()) is not None:
            return head(weights, x)
        y: Tensor = self.output(self.hidden(x))
        return y

    def weights(self) -> tuple[Tensor, ...] | None:
        """Weight, bias and scale of each layer; None where one was replaced."""
        output, found = self.output, []
        if type(output) is not TruncatedLinear or type(self.hidden) is not nn.Sequential:
            return None
        for one in self.hidden:
            if type(one) is not Layer:
                return None
            found += [one.linear.weight, one.linear.bias, one.norm.scale]
        return (*found, output.weight, output.bias)


class Conv(nn.Conv2d):
    """A convolution of 5 x 5 that keeps the size, with truncated normal weights.

    Args:
        inputs: Channels of the input.
        outputs: Channels of the output.
        generator: Source of the weights.
    """

    def __init__(self, inputs: int, outputs: int, generator: np.random.Generator) -> None:
        super().__init__(inputs, outputs, 5, padding=2)
        weight = truncated_normal(generator, (outputs, inputs, 5, 5), inputs * 25)
        with torch.no_grad():
            self.weight.copy_(torch.from_numpy(weight))
            assert self.bias is not None
            self.bias.zero_()
