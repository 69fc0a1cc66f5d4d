"""Rows of many columns at once: gather, scatter and push, each in one launch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from sharpwave.primitives.backend import HAS_TRITON, uses_triton

if HAS_TRITON:
    from sharpwave.primitives.rows import triton as jit

__all__ = ["RowTable"]


class _Kind(NamedTuple):
    """Form of the rows of a column: shape, strides of a batch of them, dtype."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


def _kind_of(column: Tensor) -> _Kind:
    # A column of one row may have any stride there, so that its own ones do not tell.
    shape = tuple(column.shape[1:])
    return _Kind(shape, torch.empty((2, *shape), device="meta").stride(), column.dtype)


class RowTable:
    """Columns [R, ...] whose rows are read and written together.

    The columns are looked at once, so that reading and writing cost little more than a launch.

    Args:
        columns: Contiguous tensors [R, ...] of any dtypes on one device, one per field of a row.

    Raises:
        ValueError: A shape or device does not fit, or a tensor is not contiguous.

    Example:
        >>> table = RowTable([torch.arange(6.0).reshape(3, 2), torch.tensor([1, 2, 3])])
        >>> [part.tolist() for part in table.gather(torch.tensor([2, 0]))]
        [[[4.0, 5.0], [0.0, 1.0]], [3, 1]]
    """

    def __init__(self, columns: Sequence[Tensor]) -> None:
        self.columns = tuple(columns)
        if not self.columns:
            raise ValueError("columns must hold at least one tensor, got none")
        first = self.columns[0]
        for i, column in enumerate(self.columns):
            if column.dim() == 0 or column.shape[0] != first.shape[0]:
                raise ValueError(
                    f"columns[{i}] must have as many rows as columns[0], got {tuple(column.shape)}"
                    f" and {tuple(first.shape)}"
                )
            if column.device != first.device:
                raise ValueError(
                    f"columns[{i}] must be on {first.device} like columns[0], got {column.device}"
                )
            if not column.is_contiguous():
                raise ValueError(f"columns[{i}] must be contiguous, got strides {column.stride()}")
        self._device = first.device
        self._kinds = tuple(_kind_of(column) for column in self.columns)
        self._filled = tuple(i for i, kind in enumerate(self._kinds) if math.prod(kind.shape))
        self._uses_triton = uses_triton(first)
        if self._uses_triton and self._filled:
            self._same_plan = _plan(self._kinds, tuple(self._kinds[i].dtype for i in self._filled))

    def gather(self, index: Tensor, out: Sequence[Tensor] | None = None) -> list[Tensor]:
        """`[column[index] for column in columns]`.

        Args:
            index: [B] int64, each from 0 to R - 1. On CUDA nobody looks: an index outside gives
                zeros.
            out: Contiguous tensors [B, ...] of the columns' dtypes to write into.

        Returns:
            One tensor [B, ...] per column.

        Raises:
            ValueError: A shape, dtype or device does not fit, or a tensor is not contiguous.
        """
        count = self._check_index(index)
        if out is None:
            out = [  # like torch.empty, which takes longer to look at its arguments
                torch.empty_strided((count, *shape), strides, dtype=dtype, device=self._device)
                for shape, strides, dtype in self._kinds
            ]
        elif not self._check_rows("out", out, count):
            raise ValueError(
                f"out must have dtypes {[str(kind.dtype) for kind in self._kinds]} like columns,"
                f" got {[str(row.dtype) for row in out]}"
            )
        if self._uses_triton:
            self._move(out, index, same=True, gather=True)
        else:
            for column, target in zip(self.columns, out, strict=True):
                torch.index_select(column, 0, index, out=target)
        return list(out)

    def scatter(self, rows: Sequence[Tensor], index: Tensor) -> None:
        """`column[index] = row` for all columns.

        Args:
            rows: Contiguous tensors [B, ...], one per column, cast to the column's dtype.
            index: [B] int64 without duplicates, each from 0 to R - 1. On CUDA nobody looks: a row
                whose index lies outside is not written.

        Raises:
            ValueError: A shape or device does not fit, or a tensor is not contiguous.

        Example:
            >>> column = torch.zeros(3)
            >>> RowTable([column]).scatter([torch.tensor([5, 6])], torch.tensor([2, 0]))
            >>> column.tolist()
            [6.0, 0.0, 5.0]
        """
        count = self._check_index(index)
        same = self._check_rows("rows", rows, count)
        if self._uses_triton:
            self._move(rows, index, same, gather=False)
        else:
            for column, row in zip(self.columns, rows, strict=True):
                column[index] = row.to(column.dtype)

    def push(self, rows: Sequence[Tensor], position: Tensor | int) -> None:
        """Write one step of N rows at slot `position` of a ring.

        Row i of `rows` goes to row position · N + i.

        Args:
            rows: Contiguous tensors [N, ...], one per column, cast to the column's dtype.
            position: From 0 to R / N - 1: an int, or an int64 tensor of one element, which is read
                on the device, so that a CUDA graph can replay the push while a counter moves on.
                On CUDA nobody looks: rows that would lie outside are not written.

        Raises:
            ValueError: A shape, dtype or device does not fit, or a tensor is not contiguous.

        Example:
            >>> column = torch.zeros(4)
            >>> RowTable([column]).push([torch.tensor([5.0, 6.0])], torch.tensor(1))
            >>> column.tolist()
            [0.0, 0.0, 5.0, 6.0]
        """
        if isinstance(position, Tensor):
            self._check_position(position)
        count = rows[0].shape[0] if rows else 0
        same = self._check_rows("rows", rows, count)
        if self._uses_triton:
            columns, moved = self._moved(rows)
            if columns and count:
                jit.push(columns, moved, position, count, self._plan(moved, same))
            return
        begin = position.reshape(()) * count if isinstance(position, Tensor) else position * count
        index = begin + torch.arange(count, device=self._device)
        for column, row in zip(self.columns, rows, strict=True):
            column[index] = row.to(column.dtype)

    def _move(self, rows: Sequence[Tensor], index: Tensor, same: bool, gather: bool) -> None:
        columns, moved = self._moved(rows)
        if columns and index.shape[0]:
            jit.move(columns, moved, index, self._plan(moved, same), gather)

    def _moved(self, rows: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Those columns whose rows hold anything, and the rows."""
        if len(self._filled) == len(self.columns):
            return self.columns, tuple(rows)
        return tuple(self.columns[i] for i in self._filled), tuple(rows[i] for i in self._filled)

    def _plan(self, rows: tuple[Tensor, ...], same: bool) -> jit.MovePlan:
        """Plan of moving rows, which is known beforehand where dtypes agree."""
        if same:
            return self._same_plan
        return _plan(self._kinds, tuple(row.dtype for row in rows))

    def _check_index(self, index: Tensor) -> int:
        if index.dtype is not torch.int64 or index.dim() != 1 or not index.is_contiguous():
            raise ValueError(
                "index must be a contiguous int64 tensor of one axis,"
                f" got {index.dtype} of shape {tuple(index.shape)}"
            )
        if index.device != self._device:
            raise ValueError(f"index must be on {self._device} like columns, got {index.device}")
        return index.shape[0]

    def _check_position(self, position: Tensor) -> None:
        if position.numel() != 1 or position.dtype is not torch.int64:
            raise ValueError(
                "position must be an int or an int64 tensor of one element,"
                f" got {position.dtype} of shape {tuple(position.shape)}"
            )
        if position.device != self._device:
            raise ValueError(
                f"position must be on {self._device} like columns, got {position.device}"
            )

    def _check_rows(self, name: str, rows: Sequence[Tensor], count: int) -> bool:
        """Raise if rows do not fit; whether their dtypes are those of the columns."""
        if len(rows) != len(self.columns):
            raise ValueError(
                f"{name} must hold {len(self.columns)} tensors like columns, got {len(rows)}"
            )
        same = True
        for i, (row, kind) in enumerate(zip(rows, self._kinds, strict=True)):
            if row.shape != (count, *kind.shape):
                expected = (count, *kind.shape)
                raise ValueError(f"{name}[{i}] must have shape {expected}, got {tuple(row.shape)}")
            if row.device != self._device:
                raise ValueError(f"{name}[{i}] must be on {self._device}, got {row.device}")
            if not row.is_contiguous():
                raise ValueError(f"{name}[{i}] must be contiguous, got strides {row.stride()}")
            same = same and row.dtype is kind.dtype
        return same


@lru_cache(maxsize=1024)
def _plan(kinds: tuple[_Kind, ...], dtypes: tuple[torch.dtype, ...]) -> jit.MovePlan:
    """Plan of moving rows of these dtypes to columns of such kinds, without empty ones."""
    filled = [kind for kind in kinds if math.prod(kind.shape)]
    pairs = zip(filled, dtypes, strict=True)
    return jit.plan_rows(
        tuple((math.prod(k.shape), k.dtype.itemsize, k.dtype is dtype) for k, dtype in pairs)
    )
