"""Rows of many columns at once in Triton. Programs are dealt out to the columns in order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import triton
import triton.language as tl
from torch import Tensor

from sharpwave.kernels.backend import launch
from sharpwave.kernels.jit.scan import power_of_two

ELEMENTS = 0  # instead of the bytes of a word: elements keep their type and are cast
TILE = 1024
FLAT = tl.constexpr(2048)

Plan = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]


@triton.jit
def as_words(pointer, BYTES: tl.constexpr):
    """The pointer to words of so many bytes; to its own elements if 0."""
    if BYTES == 4:
        return pointer.to(tl.pointer_type(tl.int32))
    elif BYTES == 2:
        return pointer.to(tl.pointer_type(tl.int16))
    elif BYTES == 1:
        return pointer.to(tl.pointer_type(tl.int8))
    else:
        return pointer


@triton.jit
def cast_like(word, pointer):
    """The word in the type that the pointer points to."""
    if pointer.dtype.element_ty == tl.int1:
        return word != 0
    elif pointer.dtype.element_ty == tl.bfloat16:
        return word.to(tl.float32).to(tl.bfloat16)
    else:
        return word.to(pointer.dtype.element_ty)


@triton.jit
def move_kernel(
    columns, rows, index, count, n_rows,
    GATHER: tl.constexpr, BYTES: tl.constexpr, WIDTHS: tl.constexpr,
    HEIGHTS: tl.constexpr, SPANS: tl.constexpr,
):  # fmt: skip
    """Gather or scatter; a program moves HEIGHT rows, SPAN words wide."""
    program = tl.program_id(0)
    for f in tl.static_range(len(columns)):
        parts = (WIDTHS[f] + SPANS[f] - 1) // SPANS[f]
        programs = tl.cdiv(count, HEIGHTS[f]) * parts
        if (program >= 0) & (program < programs):
            row = (program // parts) * HEIGHTS[f] + tl.arange(0, HEIGHTS[f])
            word = (program % parts) * SPANS[f] + tl.arange(0, SPANS[f])
            at = tl.load(index + row, mask=row < count, other=-1)
            exists = ((at >= 0) & (at < n_rows))[:, None] & (word < WIDTHS[f])[None, :]
            inside = (row < count)[:, None] & (word < WIDTHS[f])[None, :]
            there = at[:, None] * WIDTHS[f] + word[None, :]
            here = row.to(tl.int64)[:, None] * WIDTHS[f] + word[None, :]
            column = as_words(columns[f], BYTES[f])
            batch = as_words(rows[f], BYTES[f])
            if GATHER:
                tl.store(batch + here, tl.load(column + there, mask=exists, other=0), mask=inside)
            else:
                given = tl.load(batch + here, mask=inside, other=0)
                tl.store(column + there, cast_like(given, column), mask=exists)
        program -= programs


@triton.jit
def push_kernel(columns, rows, position, count, n_rows, BYTES: tl.constexpr, WIDTHS: tl.constexpr):
    """Copy rows to columns from row position · count on."""
    program = tl.program_id(0)
    slot = tl.load(position)
    for f in tl.static_range(len(columns)):
        words = count * WIDTHS[f]
        programs = tl.cdiv(words, FLAT)
        if (program >= 0) & (program < programs):
            here = program * FLAT + tl.arange(0, FLAT)
            column = as_words(columns[f], BYTES[f])
            batch = as_words(rows[f], BYTES[f])
            there = slot * words + here
            end = tl.full((), 1, tl.int64) * n_rows * WIDTHS[f]
            inside = (here < words) & (there >= 0) & (there < end)
            given = tl.load(batch + here, mask=inside, other=0)
            tl.store(column + there, cast_like(given, column), mask=inside)
        program -= programs


def gather(columns: Sequence[Tensor], index: Tensor, out: Sequence[Tensor]) -> None:
    """Launch `move_kernel` to read rows."""
    _move(columns, out, index, gather=True)


def scatter(columns: Sequence[Tensor], rows: Sequence[Tensor], index: Tensor) -> None:
    """Launch `move_kernel` to write rows."""
    _move(columns, rows, index, gather=False)


def push(columns: Sequence[Tensor], rows: Sequence[Tensor], position: Tensor) -> None:
    """Launch `push_kernel`."""
    columns, rows = _moved(columns, rows)
    if not columns:
        return
    count = rows[0].shape[0]
    sizes, widths, _, _ = _plan(tuple(_kind(c, r) for c, r in zip(columns, rows, strict=True)))
    programs = sum(-(-count * width // FLAT.value) for width in widths)
    launch(
        push_kernel,
        (programs,),
        position,
        tuple(columns),
        tuple(rows),
        position,
        count,
        columns[0].shape[0],
        BYTES=sizes,
        WIDTHS=widths,
        num_warps=4,
    )


def _move(columns: Sequence[Tensor], rows: Sequence[Tensor], index: Tensor, gather: bool) -> None:
    columns, rows = _moved(columns, rows)
    if not columns:
        return
    count = rows[0].shape[0]
    sizes, widths, heights, spans = _plan(
        tuple(_kind(c, r) for c, r in zip(columns, rows, strict=True))
    )
    programs = sum(
        -(-count // height) * -(-width // span)
        for width, height, span in zip(widths, heights, spans, strict=True)
    )
    launch(
        move_kernel,
        (programs,),
        index,
        tuple(columns),
        tuple(rows),
        index,
        count,
        columns[0].shape[0],
        GATHER=gather,
        BYTES=sizes,
        WIDTHS=widths,
        HEIGHTS=heights,
        SPANS=spans,
        num_warps=4,
    )


def _moved(
    columns: Sequence[Tensor], rows: Sequence[Tensor]
) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """Those columns whose rows hold anything."""
    if all(row.numel() for row in rows):
        return columns, rows
    pairs = [(c, r) for c, r in zip(columns, rows, strict=True) if r.numel()]
    return [column for column, _ in pairs], [row for _, row in pairs]


def _kind(column: Tensor, row: Tensor) -> tuple[int, int, bool]:
    """Elements per row, bytes per element, and whether bytes may be copied as they are."""
    return row.numel() // row.shape[0], column.element_size(), column.dtype is row.dtype


@lru_cache(maxsize=1024)
def _plan(kinds: tuple[tuple[int, int, bool], ...]) -> Plan:
    """Bytes of a word, words per row, and the rows and words of one program, per column."""
    entries = []
    for elements, itemsize, same in kinds:
        if same:
            row_bytes = elements * itemsize
            word = next(size for size in (4, 2, 1) if row_bytes % size == 0)
            width = row_bytes // word
        else:
            word, width = ELEMENTS, elements
        span = min(power_of_two(width), TILE)
        entries.append((word, width, min(TILE // span, 256), span))
    sizes, widths, heights, spans = zip(*entries, strict=True)
    return sizes, widths, heights, spans
