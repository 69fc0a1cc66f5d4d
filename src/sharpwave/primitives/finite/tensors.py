"""A look for numbers that are not finite, without a wait for their device."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from sharpwave.primitives.backend import HAS_TRITON, uses_triton

if HAS_TRITON:
    from sharpwave.primitives.finite import triton as jit

__all__ = ["look"]


def look(mark: Tensor, tensors: Sequence[Tensor]) -> None:
    """Make a mark NaN if one of these numbers is NaN or infinite.

    Args:
        mark: [] float64, 0 or NaN.
        tensors: On its device, of floating point.

    Example:
        >>> import torch
        >>> mark = torch.zeros((), dtype=torch.float64)
        >>> look(mark, [torch.ones(3), torch.tensor([1.0, torch.inf])])
        >>> mark.item()
        nan
    """
    if uses_triton(mark):
        jit.look(mark, [tensor.contiguous() for tensor in tensors])
        return
    for tensor in tensors:
        # 0 times NaN or inf is NaN. isfinite() and all() take three times as many operations.
        mark.add_(tensor.sum(dtype=mark.dtype), alpha=0.0)
