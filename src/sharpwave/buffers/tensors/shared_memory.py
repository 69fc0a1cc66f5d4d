"""Memory that several processes share and that is gone when the last of them is."""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from multiprocessing import reduction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sharpwave._native import SharedRing
from sharpwave.buffers.tensors.fields import Fields

__all__ = ["SharedBlock"]

_ALIGNMENT = 64


class SharedBlock:
    """The head and the columns of a ring of steps, in an unnamed file in memory.

    A copy that reaches another process, as an argument of `multiprocessing.Process` or through a
    queue, is over the same memory. There is no name to clean up: however the processes end, the
    system takes the memory back with the last of them.

    Args:
        fields: Of a row.
        buffer_size: Steps.
        num_envs: Rows of a step.
        descriptor: Of the file, to share one that exists.
    """

    def __init__(
        self, fields: Fields, buffer_size: int, num_envs: int, descriptor: int | None = None
    ) -> None:
        self._made_of = (fields, buffer_size, num_envs)
        places, size = _places(fields, buffer_size * num_envs)
        is_new = descriptor is None
        self._descriptor = _unnamed_file(size) if descriptor is None else descriptor
        memory = mmap.mmap(self._descriptor, size)
        head: Any = np.frombuffer(memory, np.uint8, SharedRing.BYTES)
        if is_new:
            SharedRing.create(head, buffer_size)
        self.ring = SharedRing(head)
        self.columns = [
            _column(memory, begin, leaf.dtype, (buffer_size * num_envs, *leaf.shape))
            for begin, leaf in zip(places, fields.leaves, strict=True)
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_again, (*self._made_of, reduction.DupFd(self._descriptor))

    def __del__(self) -> None:
        descriptor = getattr(self, "_descriptor", None)
        if descriptor is not None:
            os.close(descriptor)


def _open_again(fields: Fields, buffer_size: int, num_envs: int, sent: Any) -> SharedBlock:
    return SharedBlock(fields, buffer_size, num_envs, sent.detach())


def _unnamed_file(size: int) -> int:
    folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)  # a lack of memory shows here, not later
        except OSError as error:
            raise MemoryError(f"cannot share {size} bytes: {error.strerror}") from error
        return os.dup(file.fileno())


def _places(fields: Fields, n_rows: int) -> tuple[list[int], int]:
    places, size = [], SharedRing.BYTES
    for leaf in fields.leaves:
        places.append(size)
        n_bytes = math.prod((n_rows, *leaf.shape)) * leaf.dtype.itemsize
        size += -(-n_bytes // _ALIGNMENT) * _ALIGNMENT
    return places, size


def _column(memory: mmap.mmap, begin: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    count = math.prod(shape)
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=begin).view(shape)
