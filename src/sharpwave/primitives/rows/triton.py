"""Rows of many columns at once in Triton. Programs are dealt out to the columns in order."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from sharpwave.primitives.launching import launch
from sharpwave.primitives.scan import power_of_two

ELEMENTS = 0  # instead of the bytes of a word: elements keep their type and are cast
TILE = 1024
FLAT = tl.constexpr(2048)


class MovePlan(NamedTuple):
    """Per column: bytes of a word, words per row, and the rows and words that a program moves."""

    words: tuple[int, ...]
    widths: tuple[int, ...]
    heights: tuple[int, ...]
    spans: tuple[int, ...]


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


@triton.jit(do_not_specialize=["position"])
def push_kernel(
    columns, rows, position, count, n_rows,
    ON_DEVICE: tl.constexpr, BYTES: tl.constexpr, WIDTHS: tl.constexpr,
):  # fmt: skip
    """Copy rows to columns from row position · count on."""
    program = tl.program_id(0)
    slot = tl.load(position) if ON_DEVICE else tl.cast(position, tl.int64)
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


def plan_rows(kinds: tuple[tuple[int, int, bool], ...]) -> MovePlan:
    """Plan of moving rows, from elements per row, bytes per element and whether dtypes agree."""
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
    return MovePlan(*zip(*entries, strict=True))


def move(
    columns: tuple[Tensor, ...],
    rows: tuple[Tensor, ...],
    index: Tensor,
    plan: MovePlan,
    gather: bool,
) -> None:
    """Launch `move_kernel`; there is at least one column, and rows are not empty."""
    count = index.shape[0]
    launch(
        move_kernel,
        (_move_programs(plan, count),),
        index,
        columns,
        rows,
        index,
        count,
        columns[0].shape[0],
        GATHER=gather,
        BYTES=plan.words,
        WIDTHS=plan.widths,
        HEIGHTS=plan.heights,
        SPANS=plan.spans,
        num_warps=4,
    )


def push(
    columns: tuple[Tensor, ...],
    rows: tuple[Tensor, ...],
    position: Tensor | int,
    count: int,
    plan: MovePlan,
) -> None:
    """Launch `push_kernel`; there is at least one column, and rows are not empty."""
    launch(
        push_kernel,
        (_push_programs(plan, count),),
        columns[0],
        columns,
        rows,
        position,
        count,
        columns[0].shape[0],
        ON_DEVICE=isinstance(position, Tensor),
        BYTES=plan.words,
        WIDTHS=plan.widths,
        num_warps=4,
    )


@lru_cache(maxsize=1024)
def _move_programs(plan: MovePlan, count: int) -> int:
    parts = zip(plan.widths, plan.heights, plan.spans, strict=True)
    return sum(-(-count // height) * -(-width // span) for width, height, span in parts)


@lru_cache(maxsize=1024)
def _push_programs(plan: MovePlan, count: int) -> int:
    return sum(-(-count * width // FLAT.value) for width in plan.widths)
