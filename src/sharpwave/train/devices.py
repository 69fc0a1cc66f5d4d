"""The device of a run."""

from __future__ import annotations

from sharpwave.lazy import torch


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
