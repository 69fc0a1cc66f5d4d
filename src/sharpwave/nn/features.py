"""Feature extractors: from observations of any space to vectors.

Every extractor takes [..., *observation shape], nested where the space is, and gives [..., size].
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from sharpwave.layouts.features import is_image
from sharpwave.nn.mlp import initialize, initialize_uniform

__all__ = ["Combined", "Features", "Flat", "NatureCNN", "OneHot", "is_image", "make_features"]

_SMALLEST_IMAGE = 36
"""Sides below this leave the last convolution of `NatureCNN` nothing to look at."""


class Features(nn.Module):
    """Base of the extractors.

    Attributes:
        size: Length of the vectors.
    """

    size: int


class Flat(Features):
    """Numbers as float32, in one row.

    Args:
        shape: Shape of one observation.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.size = math.prod(shape)
        self._axes = len(shape)

    def forward(self, obs: Tensor) -> Tensor:
        """[..., *shape] of any type as [..., size] float32."""
        if obs.dtype != torch.float32:
            obs = obs.float()
        if self._axes == 1:
            return obs
        return obs.reshape(*obs.shape[: obs.ndim - self._axes], self.size)


class OneHot(Features):
    """Each of some integers as a row of zeros with one 1, side by side.

    Args:
        nvec: [*shape] number of values of each.
        start: [*shape] smallest value of each.
    """

    values: Tensor
    source: Tensor

    def __init__(self, nvec: Any, start: Any) -> None:
        super().__init__()
        counts = np.asarray(nvec, np.int64)
        firsts = np.asarray(start, np.int64).reshape(-1)
        flat = counts.reshape(-1)
        self.size = int(flat.sum())
        self._axes = counts.ndim
        values = [first + np.arange(count) for count, first in zip(flat, firsts, strict=True)]
        self.register_buffer("values", torch.from_numpy(np.concatenate(values)), persistent=False)
        source = torch.from_numpy(np.repeat(np.arange(len(flat)), flat))
        self.register_buffer("source", source, persistent=False)

    def forward(self, obs: Tensor) -> Tensor:
        """Integers [..., *shape] as [..., size] float32."""
        flat = obs.reshape(*obs.shape[: obs.ndim - self._axes], -1)
        return (flat.index_select(-1, self.source) == self.values).float()


class NatureCNN(Features):
    """The three convolutions and the linear layer of the 2015 DQN, for uint8 images.

    Pixels are divided by 255. The axis of the channels is the shorter one of first and last.

    Args:
        shape: Shape of one image, [C, H, W] or [H, W, C].
        size: Length of the vectors.
        generator: Source of the weights.
        ortho_init: First weights are orthogonal; otherwise those of torch's layers.

    Raises:
        ValueError: The image is too small.
    """

    def __init__(
        self,
        shape: Sequence[int],
        size: int,
        generator: np.random.Generator,
        *,
        ortho_init: bool = True,
    ) -> None:
        super().__init__()
        self.size = size
        self._channels_last = shape[2] < shape[0]
        height, width, channels = shape if self._channels_last else (*shape[1:], shape[0])
        if min(height, width) < _SMALLEST_IMAGE:
            raise ValueError(
                f"image observations must be at least {_SMALLEST_IMAGE} pixels high and wide, "
                f"got shape {tuple(shape)}; flatten smaller ones into a vector"
            )
        positions = _convolved(height) * _convolved(width)
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 32, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * positions, size),
            nn.ReLU(),
        )
        (initialize if ortho_init else initialize_uniform)(self, generator)

    def forward(self, obs: Tensor) -> Tensor:
        """Images [..., *shape] as [..., size]."""
        images = obs.reshape(-1, *obs.shape[-3:])
        if self._channels_last:
            images = images.movedim(-1, 1)
        features: Tensor = self.layers(images.float() / 255.0)
        return features.reshape(*obs.shape[:-3], self.size)


def _convolved(side: int) -> int:
    """Length of a side after the convolutions."""
    for kernel, stride in ((8, 4), (4, 2), (3, 1)):
        side = (side - kernel) // stride + 1
    return side


class Combined(Features):
    """The vectors of the leaves of a Dict or Tuple, side by side in the order of the space.

    Args:
        leaves: The extractor of each leaf by its key, a number for tuples.
    """

    def __init__(self, leaves: Mapping[Any, Features]) -> None:
        super().__init__()
        # Keys may hold what names of modules must not, so the leaves go by number.
        self.leaves = nn.ModuleList(leaves.values())
        self._keys = list(leaves)
        self.size = sum(leaf.size for leaf in leaves.values())

    def forward(self, obs: Any) -> Tensor:
        """Nested observations as [..., size]."""
        parts = [leaf(obs[key]) for key, leaf in zip(self._keys, self.leaves, strict=True)]
        return torch.cat(parts, -1)


def make_features(
    space: spaces.Space[Any],
    generator: np.random.Generator,
    *,
    image_size: int = 512,
    ortho_init: bool = True,
) -> Features:
    """The extractor for an observation space.

    Images go through a `NatureCNN`, integers become `OneHot`, other numbers are `Flat`; Dict and
    Tuple spaces are `Combined`, with 256 features for each image.

    Args:
        space: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these.
        generator: Source of the weights.
        image_size: Number of features of an image.
        ortho_init: First weights of convolutions are orthogonal; otherwise torch's.

    Raises:
        TypeError: The space is of another kind.
        ValueError: Images are too small.

    Example:
        >>> features = make_features(spaces.Discrete(3), np.random.default_rng(0))
        >>> features(torch.tensor([2])).tolist()
        [[0.0, 0.0, 1.0]]
    """
    if isinstance(space, spaces.Box):
        if is_image(space):
            return NatureCNN(space.shape, image_size, generator, ortho_init=ortho_init)
        return Flat(space.shape)
    if isinstance(space, spaces.Discrete):
        return OneHot(space.n, space.start)
    if isinstance(space, spaces.MultiDiscrete):
        return OneHot(space.nvec, space.start)
    if isinstance(space, spaces.MultiBinary):
        return Flat(space.shape)
    if isinstance(space, spaces.Dict):
        keys: Sequence[Any] = list(space.spaces)
    elif isinstance(space, spaces.Tuple):
        keys = range(len(space.spaces))
    else:
        raise TypeError(
            "observation_space must be Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or "
            f"Tuple of these, got {space}"
        )
    return Combined(
        {
            key: make_features(space[key], generator, image_size=256, ortho_init=ortho_init)
            for key in keys
        }
    )
