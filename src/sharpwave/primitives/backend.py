"""Choice of the implementation: Triton on CUDA where it is installed, plain torch elsewhere."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

__all__ = ["HAS_TRITON", "INTERPRETED", "check_like", "numel_fits_int32", "uses_triton"]

HAS_TRITON = find_spec("triton") is not None
INTERPRETED = HAS_TRITON and os.environ.get("TRITON_INTERPRET") == "1"
"""Triton runs in its interpreter, on CPU tensors: slow, for tests."""


def uses_triton(tensor: Tensor) -> bool:
    """Return whether work on this tensor goes to a Triton kernel."""
    return HAS_TRITON and (tensor.is_cuda or INTERPRETED)


def check_like(
    name: str, tensor: Any, shape: Sequence[int], like: str, device: torch.device
) -> None:
    """Raise if an argument is not a tensor of this shape on this device."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a tensor on {device}, got {type(tensor).__name__}")
    if tensor.shape != shape:
        raise ValueError(
            f"{name} must have shape {tuple(shape)} like {like}, got {tuple(tensor.shape)}"
        )
    if tensor.device != device:
        raise ValueError(f"{name} must be on {device} like {like}, got {tensor.device}")


def numel_fits_int32(tensor: Tensor) -> bool:
    """Return whether kernels may count the elements of a tensor in 32 bits."""
    return tensor.numel() < 2**31
