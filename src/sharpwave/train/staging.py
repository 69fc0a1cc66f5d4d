"""Batches on their way to a device."""

from __future__ import annotations

from typing import Any

import numpy as np

from sharpwave.lazy import torch
from sharpwave.nest import leaves, map_leaves
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
        device: Where they go.

    Example:
        >>> staging = Staging({"obs": np.zeros((2, 3), np.float32)}, torch.device("cpu"))
        >>> staging.memory()["obs"][:] = 1.0
        >>> staging.send()["obs"].sum()
        tensor(6.)
    """

    def __init__(self, example: Nested, device: torch.device) -> None:
        places: dict[int, tuple[int, Array]] = {}
        size = 0
        for _, array in leaves(example):
            places[id(array)] = size, array
            size += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        is_cuda = device.type == "cuda"
        blocks = [torch.empty(size, dtype=torch.uint8, pin_memory=is_cuda) for _ in range(2)]
        there = torch.empty(size, dtype=torch.uint8, device=device)

        def in_memory(block: Array) -> Nested:
            return map_leaves(lambda array: _array_at(block, *places[id(array)]), example)

        self._blocks = blocks
        self._memories = [in_memory(block.numpy()) for block in blocks]
        self._there = there
        self._tensors = map_leaves(lambda array: _tensor_at(there, *places[id(array)]), example)
        self._copied = [torch.cuda.Event() for _ in blocks] if is_cuda else None
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


def _array_at(block: Array, begin: int, like: Array) -> Array:
    part: Any = block[begin : begin + like.nbytes].view(like.dtype)
    array: Array = part.reshape(like.shape)
    return array


def _tensor_at(block: torch.Tensor, begin: int, like: Array) -> torch.Tensor:
    dtype = torch.from_numpy(np.empty(0, like.dtype)).dtype
    return block[begin : begin + like.nbytes].view(dtype).reshape(like.shape)
