"""Rows of many columns at once: gather, scatter and push, each in one launch.

A column is a contiguous tensor [R, ...] that holds one field of R rows. Columns may differ in dtype
and in the shape of a row.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sharpwave.kernels.backend import HAS_TRITON, uses_triton

if HAS_TRITON:
    from sharpwave.kernels.jit import rows as jit

__all__ = ["gather_rows", "push_rows", "scatter_rows"]


def gather_rows(
    columns: Sequence[Tensor], index: Tensor, out: Sequence[Tensor] | None = None
) -> list[Tensor]:
    """`[column[index] for column in columns]` in one launch.

    Args:
        columns: Contiguous tensors [R, ...].
        index: [B] int64, each from 0 to R - 1. On CUDA nobody looks: an index outside gives zeros.
        out: Contiguous tensors [B, ...] of the columns' dtypes to write into.

    Returns:
        One tensor [B, ...] per column.

    Raises:
        ValueError: A shape, dtype or device does not fit, or a tensor is not contiguous.

    Example:
        >>> obs, reward = torch.arange(6.0).reshape(3, 2), torch.tensor([1, 2, 3])
        >>> [part.tolist() for part in gather_rows([obs, reward], torch.tensor([2, 0]))]
        [[[4.0, 5.0], [0.0, 1.0]], [3, 1]]
    """
    _check_index(index)
    count = len(index)
    _check_columns(columns, index)
    if out is None:
        out = [column.new_empty((count, *column.shape[1:])) for column in columns]
    else:
        _check_rows("out", out, columns, count, cast=False)
    if uses_triton(index):
        jit.gather(columns, index, out)
    else:
        for column, target in zip(columns, out, strict=True):
            torch.index_select(column, 0, index, out=target)
    return list(out)


def scatter_rows(columns: Sequence[Tensor], rows: Sequence[Tensor], index: Tensor) -> None:
    """`column[index] = row` for all columns in one launch.

    Args:
        columns: Contiguous tensors [R, ...].
        rows: Contiguous tensors [B, ...], one per column, cast to the column's dtype.
        index: [B] int64 without duplicates, each from 0 to R - 1. On CUDA nobody looks: a row whose
            index lies outside is not written.

    Raises:
        ValueError: A shape or device does not fit, or a tensor is not contiguous.

    Example:
        >>> column = torch.zeros(3)
        >>> scatter_rows([column], [torch.tensor([5, 6])], torch.tensor([2, 0]))
        >>> column.tolist()
        [6.0, 0.0, 5.0]
    """
    _check_index(index)
    _check_columns(columns, index)
    _check_rows("rows", rows, columns, len(index), cast=True)
    if uses_triton(index):
        jit.scatter(columns, rows, index)
    else:
        for column, row in zip(columns, rows, strict=True):
            column[index] = row.to(column.dtype)


def push_rows(columns: Sequence[Tensor], rows: Sequence[Tensor], position: Tensor) -> None:
    """Write one step of N rows at slot `position` of a ring in one launch.

    Row i of `rows` goes to row position · N + i. The position is read on the device, so that a CUDA
    graph can replay the push while a counter moves on.

    Args:
        columns: Contiguous tensors [R, ...].
        rows: Contiguous tensors [N, ...], one per column, cast to the column's dtype.
        position: int64 tensor of one element, from 0 to R / N - 1. On CUDA nobody looks: rows that
            would lie outside are not written.

    Raises:
        ValueError: A shape, dtype or device does not fit, or a tensor is not contiguous.

    Example:
        >>> column = torch.zeros(4)
        >>> push_rows([column], [torch.tensor([5.0, 6.0])], torch.tensor(1))
        >>> column.tolist()
        [0.0, 0.0, 5.0, 6.0]
    """
    if position.numel() != 1 or position.dtype != torch.int64:
        raise ValueError(
            "position must be an int64 tensor of one element,"
            f" got {position.dtype} of shape {tuple(position.shape)}"
        )
    _check_columns(columns, position)
    count = len(rows[0]) if rows else 0
    _check_rows("rows", rows, columns, count, cast=True)
    if uses_triton(position):
        jit.push(columns, rows, position)
    else:
        index = position.reshape(()) * count + torch.arange(count, device=position.device)
        for column, row in zip(columns, rows, strict=True):
            column[index] = row.to(column.dtype)


def _check_index(index: Tensor) -> None:
    if index.dtype != torch.int64 or index.dim() != 1 or not index.is_contiguous():
        raise ValueError(
            "index must be a contiguous int64 tensor of one axis,"
            f" got {index.dtype} of shape {tuple(index.shape)}"
        )


def _check_columns(columns: Sequence[Tensor], index: Tensor) -> None:
    device = index.device
    for i, column in enumerate(columns):
        if column.dim() == 0 or column.shape[0] != columns[0].shape[0]:
            raise ValueError(
                f"columns[{i}] must have as many rows as columns[0], got {tuple(column.shape)}"
                f" and {tuple(columns[0].shape)}"
            )
        if column.device != device:
            raise ValueError(
                f"columns[{i}] must be on {device} like the index, got {column.device}"
            )
        if not column.is_contiguous():
            raise ValueError(f"columns[{i}] must be contiguous, got strides {column.stride()}")


def _check_rows(
    name: str, rows: Sequence[Tensor], columns: Sequence[Tensor], count: int, *, cast: bool
) -> None:
    if len(rows) != len(columns):
        raise ValueError(f"{name} must hold {len(columns)} tensors like columns, got {len(rows)}")
    for i, (row, column) in enumerate(zip(rows, columns, strict=True)):
        shape = (count, *column.shape[1:])
        if row.shape != shape:
            raise ValueError(f"{name}[{i}] must have shape {shape}, got {tuple(row.shape)}")
        if row.device != column.device:
            raise ValueError(f"{name}[{i}] must be on {column.device}, got {row.device}")
        if not row.is_contiguous():
            raise ValueError(f"{name}[{i}] must be contiguous, got strides {row.stride()}")
        if not cast and row.dtype != column.dtype:
            raise ValueError(f"{name}[{i}] must have dtype {column.dtype}, got {row.dtype}")
