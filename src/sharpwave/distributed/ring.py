"""Shared-memory slots for unrolls: an actor process writes them, the learner reads and frees."""

from __future__ import annotations

import math
import mmap
import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from sharpwave.buffers.shared_memory import take_memory, unnamed_file
from sharpwave.core.tree import leaves, map_leaves
from sharpwave.distributed.fleet import Unroll
from sharpwave.types import Nested

__all__ = ["Counts", "Form", "UnrollReader", "UnrollWriter"]

ALIGNMENT = 64
COUNTED = {"final_obs": 0, "episode_returns": 1, "episode_lengths": 1, "successes": 2}
"""Columns whose length differs between unrolls, and which of the counts it is."""

Counts = tuple[int, int, int]
"""Numbers of final observations, episodes and successes of an unroll."""


@dataclass(frozen=True)
class Form:
    """The columns of unrolls that differ in their `Counts` alone."""

    leaves: tuple[tuple[str, tuple[int, ...], int | None], ...]
    """Of each: its dtype, its shape (without a length that is counted), and which count that is."""
    nest: Nested
    """The numbers of the leaves, in the structure of `Unroll.columns`."""
    n_rows: int
    """The most that any count may be."""

    @classmethod
    def of(cls, columns: dict[str, Any], found: list[Any]) -> Form:
        """The form of some columns, whose leaves were found."""
        counts = [COUNTED.get(path.partition(".")[0]) for path, _ in leaves(columns)]
        own = tuple(
            (leaf.dtype.str, leaf.shape if count is None else leaf.shape[1:], count)
            for leaf, count in zip(found, counts, strict=True)
        )
        numbers = iter(range(len(own)))
        nest = map_leaves(lambda _: next(numbers), columns)
        return cls(own, nest, columns["rewards"].size)

    @cached_property
    def _sizes(self) -> list[tuple[tuple[int, ...], int, int | None]]:
        """Of each leaf its shape, its bytes (those of a row, where rows are counted), its count."""
        return [
            (shape, math.prod(shape) * np.dtype(dtype).itemsize, count)
            for dtype, shape, count in self.leaves
        ]

    def places(self, counts: Counts) -> tuple[list[tuple[int, tuple[int, ...]]], int]:
        """Offset and whole shape of each leaf, and the length of all."""
        places, end = [], 0
        for shape, n_bytes, count in self._sizes:
            whole = shape
            if count is not None:
                whole = (counts[count], *shape)
                n_bytes *= counts[count]
            places.append((end, whole))
            end += -(-n_bytes // ALIGNMENT) * ALIGNMENT
        return places, end

    @property
    def slot_bytes(self) -> int:
        """Bytes that the longest unroll of this form takes, in whole pages."""
        _, length = self.places((self.n_rows,) * 3)
        return -(-max(length, 1) // mmap.PAGESIZE) * mmap.PAGESIZE


class UnrollWriter:
    """An actor's side. Memory is taken from the system as far as unrolls need it.

    Args:
        n_slots: Unrolls that may be written before the first of them is read.

    Attributes:
        form: Form of the last unroll; None before the first.
        descriptor: File descriptor of the memory, which is another one after the form changed.
    """

    def __init__(self, n_slots: int) -> None:
        self.form: Form | None = None
        self.descriptor = -1
        self._n_slots = n_slots

    def write(self, slot: int, unroll: Unroll) -> tuple[Counts, bool]:
        """Write an unroll into a slot.

        Returns:
            Its counts, and whether its form is a new one, with a new `descriptor`.

        Raises:
            MemoryError: There is not that much memory to share.
        """
        columns = unroll.columns()
        found = [leaf for _, leaf in leaves(columns)]
        is_new = not self._fits(found)
        if is_new:
            self._begin(Form.of(columns, found))
        counts = _counts(columns)
        assert self.form is not None
        places, length = self.form.places(counts)
        begin = slot * self._slot_bytes
        if length > self._taken[slot]:
            take_memory(self.descriptor, begin, length)
            self._taken[slot] = length
        for leaf, (place, shape) in zip(found, places, strict=True):
            np.ndarray(shape, leaf.dtype, self._memory, begin + place)[...] = leaf
        return counts, is_new

    def _fits(self, found: list[Any]) -> bool:
        form = self.form
        return (
            form is not None
            and len(form.leaves) == len(found)
            and all(
                leaf.dtype.str == dtype and (leaf.shape if count is None else leaf.shape[1:]) == own
                for leaf, (dtype, own, count) in zip(found, form.leaves, strict=True)
            )
        )

    def _begin(self, form: Form) -> None:
        self.form, self._slot_bytes = form, form.slot_bytes
        size = self._n_slots * form.slot_bytes
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = unnamed_file(0)
        os.ftruncate(self.descriptor, size)
        self._memory = mmap.mmap(self.descriptor, size)
        self._taken = [0] * self._n_slots


class UnrollReader:
    """The learner's side, of one form of an actor's unrolls.

    Args:
        form: Form of the unrolls, which the actor sent.
        descriptor: File descriptor of its memory; it is taken over.
    """

    def __init__(self, form: Form, descriptor: int) -> None:
        self._form, self._slot_bytes = form, form.slot_bytes
        size = os.fstat(descriptor).st_size
        self._memory = np.frombuffer(mmap.mmap(descriptor, size, prot=mmap.PROT_READ), np.uint8)
        os.close(descriptor)

    def read(self, slot: int, counts: Counts, actor: int, version: int) -> Unroll:
        """A copy of the unroll in a slot, which is free afterwards."""
        places, length = self._form.places(counts)
        begin = slot * self._slot_bytes
        message: npt.NDArray[np.uint8] = self._memory[begin : begin + length].copy()
        arrays = [
            np.ndarray(shape, dtype, message.data, place)
            for (place, shape), (dtype, _, _) in zip(places, self._form.leaves, strict=True)
        ]
        columns = map_leaves(lambda number: arrays[number], self._form.nest)
        return Unroll.of_columns(actor, version, columns)


def _counts(columns: dict[str, Any]) -> Counts:
    final = columns.get("final_obs")
    n_final = 0 if final is None else len(next(leaf for _, leaf in leaves(final)))
    return n_final, len(columns["episode_returns"]), len(columns["successes"])
