"""Feature extraction without torch: from observations of any space to the inputs of a network.

The numbers are those of `nn.make_features` for spaces whose features are not learned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from sharpwave.types import Floats

__all__ = ["Features", "features_of", "is_image", "n_features"]

Features: TypeAlias = Callable[[Any], Floats]
"""From observations [B, ...], nested where the space is, to [B, n_features]."""


def features_of(space: spaces.Space[Any]) -> Features:
    """The function from observations to inputs.

    Args:
        space: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these.

    Raises:
        TypeError: The space holds images, whose features are learned, or is of another kind.

    Example:
        >>> features_of(spaces.Discrete(3))(np.array([2]))
        array([[0., 0., 1.]], dtype=float32)
    """
    n_features(space)
    if isinstance(space, spaces.Discrete):
        return _one_hot(np.array([space.n]), np.array([space.start]))
    if isinstance(space, spaces.MultiDiscrete):
        return _one_hot(space.nvec.reshape(-1), space.start.reshape(-1))
    if isinstance(space, spaces.Dict):
        return _combined({key: features_of(one) for key, one in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return _combined({i: features_of(one) for i, one in enumerate(space.spaces)})
    return flat


def is_image(space: spaces.Space[Any]) -> bool:
    """Return whether a space holds images: uint8 with three axes."""
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3


def n_features(space: spaces.Space[Any]) -> int:
    """Number of features of an observation: integers are one-hot.

    Raises:
        TypeError: The space holds images, whose features are learned, or is of another kind.
    """
    if isinstance(space, spaces.Box):
        if is_image(space):
            raise TypeError("observations are images, whose features are learned by convolutions")
        return math.prod(space.shape)
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    if isinstance(space, spaces.MultiBinary):
        return math.prod(space.shape)
    if isinstance(space, spaces.Dict):
        return sum(map(n_features, space.spaces.values()))
    if isinstance(space, spaces.Tuple):
        return sum(map(n_features, space.spaces))
    raise TypeError(f"the observation space is {space}")


def flat(obs: Any) -> Floats:
    """Numbers as float32, in one row for each observation."""
    x: Floats = np.asarray(obs, np.float32)
    return x if x.ndim == 2 else x.reshape(len(x), -1)


def _one_hot(counts: Any, starts: Any) -> Features:
    values = np.concatenate([first + np.arange(n) for n, first in zip(counts, starts, strict=True)])
    source = np.repeat(np.arange(len(counts)), counts)

    def encode(obs: Any) -> Floats:
        numbers = np.asarray(obs)
        equal: npt.NDArray[np.bool_] = numbers.reshape(len(numbers), -1)[:, source] == values
        return equal.astype(np.float32)

    return encode


def _combined(parts: dict[Any, Features]) -> Features:
    return lambda obs: np.concatenate([part(obs[key]) for key, part in parts.items()], axis=1)
