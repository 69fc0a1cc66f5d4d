"""Policy weights in shared memory: one process writes, others read without waiting."""

from __future__ import annotations

import numpy as np

from sharpwave.buffers.shared_memory import SharedArrays, SharedBlock
from sharpwave.distributed.fleet import Weights

__all__ = ["Board"]


class Board:
    """The newest weights with their version, which one process writes and others read.

    It has room for two: the writer writes over the older, while readers copy the newer. A reader
    that was so slow that its copy was written over meanwhile copies again.

    Args:
        size: Number of weights.
        descriptor: File descriptor of the memory of a board that exists; it is taken over.

    Attributes:
        descriptor: File descriptor of the memory, for other processes.

    Raises:
        MemoryError: There is not that much memory to share.

    Example:
        >>> board, copy = Board(2), np.zeros(2, np.float32)
        >>> board.write(np.array([1, 2], np.float32), version=7)
        >>> board.read(copy), copy.tolist()
        (7, [1.0, 2.0])
    """

    def __init__(self, size: int, descriptor: int | None = None) -> None:
        forms = [(np.float32, (size,)), (np.int64, ())]
        shared = None
        if descriptor is not None:
            shared = SharedArrays(SharedBlock.forms_of(forms, 2), descriptor)
        self._block = SharedBlock(forms, capacity=2, shared=shared)
        self._weights, self._versions = self._block.columns
        self.descriptor = self._block.shared.descriptor

    def write(self, weights: Weights, version: int) -> None:
        """Make these the newest weights."""
        ring = self._block.ring
        ring.lock()
        try:
            place = ring.begin() % 2
            self._weights[place] = weights
            self._versions[place] = version
            ring.finish()
        finally:
            ring.unlock()

    def read(self, out: Weights) -> int:
        """Copy the newest weights, and return their version.

        Raises:
            LookupError: Nobody has written any.
        """
        ring = self._block.ring
        while True:
            _, end = ring.range()
            if end == 0:
                raise LookupError("no weights were written")
            place = (end - 1) % 2
            np.copyto(out, self._weights[place])
            version = int(self._versions[place])
            if ring.range()[0] < end:
                return version
