"""Batches on their way to a device."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from sharpwave.core.lazy import torch
from sharpwave.core.tree import map_leaves
from sharpwave.types import Array, Nested

__all__ = ["Staging"]

_ALIGNMENT = 256


class Staging:
    """Brings batches to a device in one copy each, without waiting for it.

    A batch is put together in page-locked memory, from where it is copied while the next one is
    put together in another piece. On the device all batches lie at one address, where a CUDA graph
    finds them: a batch is gone when the next one is sent.

    Args:
        example: A batch, whose dtypes and shapes all batches have.
        device: The target device.

    Example:
        >>> staging = Staging({"obs": np.zeros((2, 3), np.float32)}, torch.device("cpu"))
        >>> staging.memory()["obs"][:] = 1.0
        >>> staging.send()["obs"].sum()
        tensor(6.)
    """

    def __init__(self, example: Nested, device: torch.device) -> None:
        places, size = _places(example)
        is_cuda = device.type == "cuda"
        there = torch.empty(size, dtype=torch.uint8, device=device)
        self._blocks = [torch.empty(size, dtype=torch.uint8, pin_memory=is_cuda) for _ in range(2)]
        self._memories = [
            map_leaves(partial(_array_at, block.numpy()), places, example) for block in self._blocks
        ]
        self._there = there
        self._tensors = map_leaves(partial(_tensor_at, there), places, example)
        self._copied = [torch.cuda.Event() for _ in self._blocks] if is_cuda else None
        self._turn = 0

    def memory(self) -> Nested:
        """The arrays to write the next batch to."""
        if self._copied is not None:
            self._copied[self._turn].synchronize()
        return self._memories[self._turn]

    def send(self) -> Nested:
        """The batch that was written to `memory`, as tensors on the device."""
        self._there.copy_(self._blocks[self._turn], non_blocking=True)
        if self._copied is not None:
            self._copied[self._turn].record()
        self._turn = 1 - self._turn
        return self._tensors

    def bring(self, batch: Nested) -> Nested:
        """A batch that lies elsewhere, as tensors on the device."""
        map_leaves(np.copyto, self.memory(), batch)
        return self.send()


def _places(example: Nested) -> tuple[Nested, int]:
    """Offset of each leaf in a block of memory, and the size of the block."""
    size = 0

    def place(array: Array) -> int:
        nonlocal size
        begin = size
        size += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        return begin

    return map_leaves(place, example), size


def _array_at(block: Array, begin: int, like: Array) -> Array:
    part: Any = block[begin : begin + like.nbytes].view(like.dtype)
    array: Array = part.reshape(like.shape)
    return array


def _tensor_at(block: torch.Tensor, begin: int, like: Array) -> torch.Tensor:
    dtype = torch.from_numpy(np.empty(0, like.dtype)).dtype
    return block[begin : begin + like.nbytes].view(dtype).reshape(like.shape)
