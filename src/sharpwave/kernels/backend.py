"""Which implementation runs: Triton on CUDA tensors where it is installed, plain torch elsewhere."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

__all__ = ["HAS_TRITON", "INTERPRETED", "check_like", "launch", "numel_fits_int32", "uses_triton"]

HAS_TRITON = find_spec("triton") is not None
INTERPRETED = HAS_TRITON and os.environ.get("TRITON_INTERPRET") == "1"
"""Triton runs in its interpreter, on CPU tensors: slow, for tests."""


def uses_triton(tensor: Tensor) -> bool:
    """Whether work on this tensor goes to a Triton kernel."""
    return HAS_TRITON and (tensor.is_cuda or INTERPRETED)


def launch(
    kernel: Any, grid: tuple[int, ...], where: Tensor, *arguments: Any, **options: Any
) -> None:
    """Start a Triton kernel on the device of `where`, which need not be the current one.

    Triton looks at every argument of every launch to find the machine code. That takes longer than
    many kernels, so what it found is kept.

    Args:
        kernel: The jitted function, whose constants follow all other parameters.
        grid: Number of programs.
        where: A tensor on the device.
        arguments: What is not constant, in order.
        options: The constants, and `num_warps`.
    """
    if INTERPRETED:
        kernel[grid](*arguments, **options)
        return
    device = where.get_device()
    if device != torch.cuda.current_device():
        with torch.cuda.device(device):
            launch(kernel, grid, where, *arguments, **options)
        return
    key = (kernel, device, tuple(map(_kind, arguments)), tuple(options.values()))
    found = _launchers.get(key)
    if found is None:
        compiled = kernel[grid](*arguments, **options)
        constants = tuple(options[name] for name in kernel.arg_names[len(arguments) :])
        _launchers[key] = compiled, constants
    else:
        found[0][(*grid, 1, 1)[:3]](*arguments, *found[1])


_launchers: dict[Any, Any] = {}


def _kind(argument: Any) -> Any:
    """What of an argument the machine code depends on."""
    if isinstance(argument, Tensor):
        return argument.dtype, argument.data_ptr() % 16 == 0
    if isinstance(argument, tuple):
        return tuple(map(_kind, argument))
    if isinstance(argument, int):
        return argument == 1, argument % 16 == 0, -(2**31) <= argument < 2**31
    return None


def check_like(name: str, tensor: Any, shape: Sequence[int], like: str, device: torch.device) -> None:
    """Raise if an argument is not a tensor of this shape on this device."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a tensor on {device}, got {type(tensor).__name__}")
    if tensor.shape != shape:
        raise ValueError(
            f"{name} must have shape {tuple(shape)} like {like}, got {tuple(tensor.shape)}"
        )
    if tensor.device != device:
        raise ValueError(f"{name} must be on {device} like {like}, got {tensor.device}")


def numel_fits_int32(*tensors: Tensor) -> bool:
    """Whether kernels may count the elements of these tensors in 32 bits."""
    return all(tensor.numel() < 2**31 for tensor in tensors)
