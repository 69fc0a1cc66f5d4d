"""Arrays that several processes share and that are gone when the last of them is."""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Sequence
from multiprocessing import reduction
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sharpwave._native import SharedRing
from sharpwave.types import Array

__all__ = ["SharedArrays", "SharedBlock", "take_memory", "unnamed_file"]

ALIGNMENT = 64

RowForm: TypeAlias = tuple[Any, tuple[int, ...]]
"""The dtype and the shape of an array."""


class SharedArrays:
    """Arrays in an unnamed file in memory, at first all zeros.

    A copy that reaches another process, as an argument of `multiprocessing.Process` or through a
    queue, is over the same memory. There is no name to clean up: however the processes end, the
    system takes the memory back with the last of them.

    Args:
        forms: Dtypes and shapes of the arrays.
        descriptor: File descriptor, to share a file that exists; it is taken over.

    Attributes:
        arrays: Over the memory.
        descriptor: File descriptor.

    Raises:
        MemoryError: There is not that much memory to share.
    """

    def __init__(self, forms: Sequence[RowForm], descriptor: int | None = None) -> None:
        self._forms = [(np.dtype(dtype), tuple(shape)) for dtype, shape in forms]
        places, size = _places(self._forms)
        self.descriptor = unnamed_file(size) if descriptor is None else descriptor
        memory = mmap.mmap(self.descriptor, size)
        self.arrays: list[Array] = [
            np.ndarray(shape, dtype, memory, begin)
            for begin, (dtype, shape) in zip(places, self._forms, strict=True)
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_again, (self._forms, reduction.DupFd(self.descriptor))

    def __del__(self) -> None:
        descriptor = getattr(self, "descriptor", None)
        if descriptor is not None:
            os.close(descriptor)


class SharedBlock:
    """A ring of steps in memory that several processes share: its head, and its columns.

    Args:
        forms: The dtype and the shape of a row of each column.
        capacity: Steps.
        n_rows: Rows of a step.
        shared: The memory of one that exists.

    Attributes:
        shared: The memory.
        ring: The head: which steps are whole.
        columns: [capacity * n_rows, ...] each.

    Raises:
        MemoryError: There is not that much memory to share.

    Example:
        >>> block = SharedBlock([(np.float32, (2,))], capacity=3)
        >>> block.ring.lock()
        >>> block.columns[0][block.ring.begin() % 3] = [1.0, 2.0]
        >>> block.ring.finish()
        >>> block.ring.unlock()
        >>> block.ring.range(), block.gather(np.array([0, 0]))[0].tolist()
        ((0, 1), [[1.0, 2.0], [1.0, 2.0]])
    """

    def __init__(
        self,
        forms: Sequence[RowForm],
        capacity: int,
        n_rows: int = 1,
        shared: SharedArrays | None = None,
    ) -> None:
        self._made_of = list(forms), capacity, n_rows
        arrays = self.forms_of(forms, capacity, n_rows)
        self.shared = SharedArrays(arrays) if shared is None else shared
        head: Any
        head, *self.columns = self.shared.arrays
        if shared is None:
            SharedRing.create(head, capacity)
        self.ring = SharedRing(head)

    @staticmethod
    def forms_of(forms: Sequence[RowForm], capacity: int, n_rows: int = 1) -> list[RowForm]:
        """The arrays of such a block: the head, and the columns."""
        columns = [(dtype, (capacity * n_rows, *shape)) for dtype, shape in forms]
        return [(np.uint8, (SharedRing.BYTES,)), *columns]

    def gather(self, rows: npt.NDArray[np.int64]) -> list[Array]:
        """The rows [B] of every column as they are now: who writes meanwhile may tear them."""
        return [column.take(rows, axis=0) for column in self.columns]

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedBlock, (*self._made_of, self.shared)


def unnamed_file(size: int) -> int:
    """The descriptor of a new file of zeros in memory, which has no name.

    Raises:
        MemoryError: There is not that much memory to share.
    """
    folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryFile(dir=folder) as file:
        if size:
            take_memory(file.fileno(), 0, size)
        return os.dup(file.fileno())


def take_memory(descriptor: int, begin: int, size: int) -> None:
    """Have the system keep memory for a part of a file: a lack of it shows here, not later.

    Raises:
        MemoryError: There is not that much memory to share.
    """
    try:
        os.posix_fallocate(descriptor, begin, size)
    except OSError as error:
        raise MemoryError(f"cannot share {size} bytes: {error.strerror}") from error


def _open_again(forms: list[RowForm], sent: Any) -> SharedArrays:
    return SharedArrays(forms, sent.detach())


def _places(forms: Sequence[RowForm]) -> tuple[list[int], int]:
    """Offsets of the arrays, and their total size; memory of no length cannot be shared."""
    places, size = [], 0
    for dtype, shape in forms:
        places.append(size)
        size += -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
    return places, max(size, ALIGNMENT)
