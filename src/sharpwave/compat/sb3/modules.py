"""Modules and optimizers of programs for SB3, as the networks of this library take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from sharpwave import nn
from sharpwave.layouts.features import is_image
from sharpwave.nn.features import Features, NatureCNN

__all__ = ["ExtractedFeatures", "Flattened", "NatureCNN", "TorchOptimizer"]


class Flattened(torch.nn.Flatten):
    """All numbers of an observation in a row.

    Args:
        space: The observations.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        super().__init__()
        self.features_dim = int(np.prod(space.shape or ()))


class ExtractedFeatures(Features):
    """A features extractor of SB3's interface, given observations as SB3 gives them.

    Images come with channels first and divided by 255, and integers as one-hot vectors.

    Args:
        space: The observations.
        extractor: Makes a module with `features_dim` from the space.
        kwargs: More arguments.

    Attributes:
        module: What it made.
    """

    def __init__(self, space: spaces.Space[Any], extractor: Any, kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        self._parts = _parts(space)
        self._is_dict = isinstance(space, spaces.Dict)
        seen: Any = {key: part.space for key, part in self._parts.items()}
        self.module = extractor(spaces.Dict(seen) if self._is_dict else seen[""], **kwargs)
        self.size = int(self.module.features_dim)

    def forward(self, obs: Any) -> Tensor:
        """Observations [..., *shape] as [..., size]."""
        named = obs if self._is_dict else {"": obs}
        read = {key: part(named[key]) for key, part in self._parts.items()}
        first, part = next(iter(named.values())), next(iter(self._parts.values()))
        leading = first.shape[: first.ndim - part.axes]
        features: Tensor = self.module(read if self._is_dict else read[""])
        return features.reshape(*leading, self.size)


class _Part:
    """One entry of observations, and the space that an extractor sees of it."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.axes = len(space.shape or ())
        self.space = space
        self._one_hot: Any = None
        self._to_front = False
        self._is_image = is_image(space)
        if self._is_image:
            shape = space.shape or ()
            self._to_front = shape[2] < shape[0]
            if self._to_front:
                self.space = spaces.Box(0, 255, (shape[2], *shape[:2]), np.uint8)
        elif isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            self._one_hot = nn.make_features(space, np.random.default_rng(0))

    def __call__(self, obs: Tensor) -> Tensor:
        if self._one_hot is not None:
            encoded: Tensor = self._one_hot.to(obs.device)(obs)
            return encoded.reshape(-1, encoded.shape[-1])
        flat = obs.reshape(-1, *obs.shape[obs.ndim - self.axes :]).float()
        if self._to_front:
            flat = flat.movedim(-1, 1)
        return flat / 255.0 if self._is_image else flat


def _parts(space: spaces.Space[Any]) -> dict[str, _Part]:
    entries = dict(space.spaces) if isinstance(space, spaces.Dict) else {"": space}
    return {key: _Part(entry) for key, entry in entries.items()}


class TorchOptimizer(nn.FlatOptimizer):
    """An optimizer of torch over parameters in one block.

    Args:
        flat: Parameters to optimize.
        kind: Its class.
        kwargs: Its arguments beside the learning rate.
    """

    def __init__(self, flat: nn.FlatParameters, kind: Any, kwargs: Mapping[str, Any]) -> None:
        super().__init__(flat, 0.0)
        flat.zero_grad()
        self._inner = kind([flat.parameter], lr=0.0, **kwargs)
        self._inner.step()  # of length 0, which makes its state
        self._state = {
            name: value
            for name, value in self._inner.state[flat.parameter].items()
            if isinstance(value, Tensor)
        }
        for value in self._state.values():
            value.zero_()

    def arrays(self) -> dict[str, Tensor]:
        """The whole state by name: the tensors themselves, not copies."""
        return {**super().arrays(), **self._state}

    def step(self, skip: Tensor | None = None) -> None:
        """Moves the parameters along their gradient, but where `skip` is 1."""
        if skip is not None and bool(skip):
            return
        for group in self._inner.param_groups:
            group["lr"] = float(self.lr)
        self._inner.step()
