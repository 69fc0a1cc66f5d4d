"""From observations to what a world model thinks in, and back."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from sharpwave.losses.world_model import symexp, symlog
from sharpwave.nn.world_images import norm_silu, pooled, upsampled
from sharpwave.nn.world_layers import BlockLinear, Conv, Head, Layer, RMSNorm, TruncatedLinear

if TYPE_CHECKING:
    from sharpwave.nn.world_model import Latent

__all__ = ["Decoder", "Encoder", "entries_of"]

MULTIPLES = (2, 3, 4, 4)
"""Channels after each convolution, in multiples of `depth`."""
IMAGE_SIZES = (64, 96)
RESIZE = "wrap the environment in gymnasium.wrappers.ResizeObservation"


def entries_of(space: spaces.Space[Any]) -> dict[str, spaces.Space[Any]]:
    """The entries of an observation space; one that is no Dict has the name "obs".

    Raises:
        TypeError: An entry is neither an image, nor a vector of numbers, nor an integer.
        ValueError: There is no entry, an image is not of a size that the model knows, or images are
            of several sizes.
    """
    entries = dict(space.spaces) if isinstance(space, spaces.Dict) else {"obs": space}
    if not entries:
        raise ValueError(f"the observation space must have an entry, got {space}")
    for name, entry in entries.items():
        if isinstance(entry, spaces.Discrete):
            continue
        if not isinstance(entry, spaces.Box):
            raise TypeError(f"observation {name!r} must be a Box or Discrete, got {entry}")
        if _is_image(entry):
            _check_image(name, entry)
    sizes = {name: entry.shape[0] for name, entry in entries.items() if _is_image(entry)}  # type: ignore[index]
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{name!r} of {size} x {size}" for name, size in sizes.items())
        raise ValueError(f"images must be of one size, got {told}: {RESIZE}")
    return entries


def _check_image(name: str, space: spaces.Box) -> None:
    """Check that an image is one that the model knows."""
    shape = space.shape
    if len(shape) == 3 and space.dtype != np.uint8:
        raise TypeError(f"the image {name!r} must be uint8, got {space.dtype}")
    if len(shape) == 3 and shape[0] == shape[1] in IMAGE_SIZES:
        return
    told = " x ".join(map(str, shape))
    if len(shape) == 3 and shape[1] == shape[2] in IMAGE_SIZES:
        raise ValueError(
            f"the image {name!r} must have its channels last, {shape[1]} x {shape[2]} x {shape[0]},"
            f" got {told}: wrap the environment in gymnasium.wrappers.TransformObservation"
        )
    raise ValueError(
        f"the image {name!r} must be 64 x 64 or 96 x 96, channels last, got {told}: {RESIZE}"
    )


def _is_image(space: spaces.Space[Any]) -> bool:
    """Return whether numbers are an image, or would be one: bytes of three axes and more."""
    if not isinstance(space, spaces.Box):
        return False
    return len(space.shape) == 3 or (len(space.shape) > 3 and space.dtype == np.uint8)


class Encoder(nn.Module):
    """Observations [..., *shape] by entry to tokens [..., size].

    Args:
        entries: Spaces by name.
        depth: Channels of images, before their multiples.
        units: Size of the layers of vectors.
        layers: Number of these layers.
        symlog: See vectors as symlogs; otherwise as they are.
        generator: Source of the weights.

    Attributes:
        size: Size of the tokens.
    """

    def __init__(
        self,
        entries: Mapping[str, spaces.Space[Any]],
        *,
        depth: int,
        units: int,
        layers: int = 3,
        symlog: bool = True,
        generator: np.random.Generator,
    ) -> None:
        super().__init__()
        self._entries, self._symlog, self.size = dict(entries), symlog, 0
        self._images = [name for name, space in entries.items() if _is_image(space)]
        self._vectors = [name for name in entries if name not in self._images]
        if self._vectors:
            sizes = [sum(_size(entries[name]) for name in self._vectors), *[units] * layers]
            self.vectors = nn.Sequential(*(Layer(a, b, generator) for a, b in pairwise(sizes)))
            self.size += units
        if self._images:
            shapes = [entries[name].shape or () for name in self._images]
            channels = [sum(shape[-1] for shape in shapes), *(depth * m for m in MULTIPLES)]
            self.convs = nn.ModuleList(Conv(a, b, generator) for a, b in pairwise(channels))
            self.norms = nn.ModuleList(RMSNorm(c, axis=-3) for c in channels[1:])
            self.size += channels[-1] * (shapes[0][0] // 16) ** 2

    def forward(self, obs: Mapping[str, Tensor]) -> Tensor:
        """Tokens of observations."""
        parts = []
        if self._vectors:
            numbers = [
                _numbers(self._entries[name], obs[name], self._symlog) for name in self._vectors
            ]
            parts.append(self.vectors(torch.cat(numbers, -1)))
        if self._images:
            images = torch.cat([obs[name] for name in self._images], -1)
            x = images.flatten(0, -4).movedim(-1, 1).float() / 255.0 - 0.5
            for conv, norm in zip(self.convs, self.norms, strict=True):
                x = norm_silu(norm, pooled(conv(x)))
            parts.append(x.flatten(1).unflatten(0, images.shape[:-3]))
        return torch.cat(parts, -1) if len(parts) > 1 else parts[0]


class Decoder(nn.Module):
    """States back to observations.

    Args:
        entries: Spaces by name.
        deter: Size of what is remembered.
        stoch: Numbers of the latents.
        depth: Channels of images, before their multiples.
        units: Size of the layers.
        layers: Number of these layers for vectors.
        blocks: Blocks of the layer that makes images of what is remembered.
        symlog: Predict vectors as symlogs; otherwise as they are.
        generator: Source of the weights.

    Raises:
        ValueError: The most channels of images are no multiple of `blocks`.
    """

    def __init__(
        self,
        entries: Mapping[str, spaces.Space[Any]],
        *,
        deter: int,
        stoch: int,
        depth: int,
        units: int,
        layers: int = 3,
        blocks: int = 8,
        symlog: bool = True,
        generator: np.random.Generator,
    ) -> None:
        super().__init__()
        self._entries, self._symlog = dict(entries), symlog
        self._images = [name for name, space in entries.items() if _is_image(space)]
        self._vectors = [name for name in entries if name not in self._images]
        if self._vectors:
            self._sizes = [_size(entries[name]) for name in self._vectors]
            self.vectors = Head(deter + stoch, layers, units, sum(self._sizes), generator)
        if self._images:
            shapes = [entries[name].shape or () for name in self._images]
            channels = [depth * m for m in MULTIPLES]
            self._blocks, self._channels = blocks, [shape[-1] for shape in shapes]
            self._least = (channels[-1], shapes[0][0] // 16, shapes[0][0] // 16)
            if channels[-1] % blocks:
                raise ValueError(
                    f"depth * {MULTIPLES[-1]} must be a multiple of blocks, {blocks}, where there "
                    f"are images, got depth={depth}"
                )
            numbers = int(np.prod(self._least))
            self.of_deter = BlockLinear(deter, numbers, blocks, generator)
            self.of_stoch = nn.Sequential(
                Layer(stoch, 2 * units, generator), TruncatedLinear(2 * units, numbers, generator)
            )
            self.first_norm = RMSNorm(channels[-1], axis=-3)
            steps = [*channels[::-1], sum(self._channels)]
            self.convs = nn.ModuleList(Conv(a, b, generator) for a, b in pairwise(steps))
            self.norms = nn.ModuleList(RMSNorm(c, axis=-3) for c in steps[1:-1])

    def forward(self, latents: Latent) -> dict[str, Tensor]:
        """Predictions of each entry, in the form that `loss` takes."""
        found: dict[str, Tensor] = {}
        if self._vectors:
            parts = self.vectors(latents.features).split(self._sizes, -1)
            found.update(zip(self._vectors, parts, strict=True))
        if self._images:
            images = self._decoded(latents).split(self._channels, -1)
            found.update(zip(self._images, images, strict=True))
        return found

    def _decoded(self, latents: Latent) -> Tensor:
        shape = latents.deter.shape[:-1]
        deter = latents.deter.flatten(0, -2).unflatten(-1, (self._blocks, -1)).transpose(0, 1)
        channels, height, width = self._least
        x = self.of_deter(deter).unflatten(-1, (channels // self._blocks, height, width))
        x = x.transpose(0, 1).flatten(1, 2)
        x = x + self.of_stoch(latents.stoch.flatten(0, -3).flatten(1)).unflatten(-1, self._least)
        x = norm_silu(self.first_norm, x)
        for i, conv in enumerate(self.convs):
            x = upsampled(conv, x)
            if i < len(self.norms):
                x = norm_silu(self.norms[i], x)
        decoded: Tensor = x.sigmoid().movedim(1, -1).unflatten(0, shape)
        return decoded

    def loss(self, found: Mapping[str, Tensor], obs: Mapping[str, Tensor]) -> Tensor:
        """[...] squared errors and cross-entropies of all entries, summed."""
        total: Any = 0.0
        for name, space in self._entries.items():
            predicted, seen = found[name].float(), obs[name]
            if isinstance(space, spaces.Discrete):
                classes = (seen - int(space.start)).long()
                loss = cross_entropy(predicted.flatten(0, -2), classes.flatten(), reduction="none")
                total = total + loss.view(classes.shape)
            elif _is_image(space):
                total = total + (predicted - seen.float() / 255.0).square().sum((-3, -2, -1))
            else:
                total = total + (predicted - _numbers(space, seen, self._symlog)).square().sum(-1)
        return total  # type: ignore[no-any-return]

    def shown(self, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Expected observations in the form of the environment's."""
        shown = {}
        for name, space in self._entries.items():
            x = found[name].float()
            if isinstance(space, spaces.Discrete):
                shown[name] = x.argmax(-1) + int(space.start)
            elif _is_image(space):
                shown[name] = (x * 255.0).round().to(torch.uint8)
            else:
                x = symexp(x) if self._symlog else x
                shown[name] = x.unflatten(-1, space.shape or ())
        return shown


def _size(space: spaces.Space[Any]) -> int:
    """Numbers that an entry becomes."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    return int(np.prod(space.shape or ()))


def _numbers(space: spaces.Space[Any], x: Tensor, as_symlogs: bool) -> Tensor:
    """Integers one-hot, other numbers as vectors, perhaps of symlogs."""
    if isinstance(space, spaces.Discrete):
        return one_hot((x - int(space.start)).long(), int(space.n)).float()
    shape = space.shape or ()
    flat = x.flatten(x.dim() - len(shape)) if shape else x[..., None]
    return symlog(flat.float()) if as_symlogs else flat.float()
