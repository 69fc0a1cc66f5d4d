"""The device of a run."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from sharpwave.core.lazy import torch

WIDE = 1024
"""Units of a layer, from which on a GPU is quicker than a CPU."""


def why_gpu(config: Any, observation_space: spaces.Space[Any]) -> str | None:
    """Why networks gain from a GPU; None where they do not.

    Args:
        config: Of the algorithm.
        observation_space: What the networks see.
    """
    if _has_images(observation_space):
        return "observations are images"
    if getattr(config, "recurrent", None) is not None:
        return f"recurrent is {config.recurrent!r}"
    widths = [_widest(getattr(config, name, None)) for name in ("hidden", "critic_hidden")]
    return f"layers have {max(widths)} units" if max(widths) >= WIDE else None


def _has_images(space: Any) -> bool:
    if isinstance(space, spaces.Dict):
        return any(map(_has_images, space.spaces.values()))
    if isinstance(space, spaces.Tuple):
        return any(map(_has_images, space.spaces))
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3


def _widest(hidden: Any) -> int:
    if isinstance(hidden, dict):
        hidden = tuple(hidden.values())
    if isinstance(hidden, tuple | list):
        return max(map(_widest, hidden), default=0)
    return hidden if isinstance(hidden, int) else 0


def find_device(name: str) -> torch.device:
    """The torch device of that name.

    Raises:
        ValueError: Torch does not have it here.
    """
    try:
        # What torch says of a tensor there: with its number.
        device = torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device must be one that torch has here, got {name!r}: {error}"
        ) from error
    return device
