"""A buffer as named pieces of bytes and a description in plain values, and back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from sharpwave.buffers.fresh_queues import dump_queues, load_queues
from sharpwave.buffers.replay import EngineMaker, engine_in_memory
from sharpwave.buffers.schema import Schema
from sharpwave.storage.generations import FORMAT, VERSION, Piece
from sharpwave.types import Array

if TYPE_CHECKING:
    from sharpwave.buffers.replay import ReplayBuffer

PIECE_BYTES = 4 << 20
PRIORITY_ARRAYS = ("leaves", "raw", "sorted")

BufferT = TypeVar("BufferT", bound="ReplayBuffer")


def to_memory(buffer: ReplayBuffer) -> dict[str, Any]:
    """The state of a buffer as plain values and bytes, for pickling."""
    pieces: dict[str, list[bytes]] = {}
    description = dump(buffer, lambda name, part: pieces.setdefault(name, []).append(bytes(part)))
    return {**description, "pieces": pieces}


def rebuild(cls: type[BufferT], state: dict[str, Any]) -> BufferT:
    """The buffer whose state `to_memory` gave."""
    pieces = {name: iter(parts) for name, parts in state["pieces"].items()}

    def read(name: str, memory: memoryview) -> None:
        memory[:] = next(pieces[name])

    return fill(cls, state, read)


def dump(buffer: ReplayBuffer, write: Piece) -> dict[str, Any]:
    """Hand all of a buffer to `write(name, piece)`; what is small enough for JSON."""
    with _locked_rows(buffer):
        for field, first, count, memory in _pieces(buffer, buffer._engine.heads()):
            buffer._engine.read_column(field, first, count, memory)
            write(f"field-{field}", memory.data)
        description, arrays = _describe(buffer)
    for name, array in arrays.items():
        if len(array) > 0:
            write(name, array.data.cast("B"))
    return description


def fill(cls: type[BufferT], state: dict[str, Any], read: Piece) -> BufferT:
    """The buffer that was dumped; `read(name, piece)` fills the pieces in the same order."""
    buffer = _empty(cls, state)
    engine = buffer._engine
    for field, first, count, memory in _pieces(buffer, state["heads"]):
        read(f"field-{field}", memory.data)
        engine.write_column(field, first, count, memory)
    empty, arrays = _describe(buffer)
    scalars = {**empty["scalars"], **state["scalars"]}
    if "sorted" in scalars:
        arrays["sorted"] = np.empty(min(scalars.pop("sorted"), engine.slots), np.float32)
    for name, array in arrays.items():
        if len(array) > 0:
            read(name, array.data.cast("B"))
    marks = [array for name, array in arrays.items() if name.startswith("marks-")]
    engine.restore_heads([tuple(head) for head in state["heads"]], marks)
    engine.restore_counters(state["counters"])
    load_queues(engine, state.get("fresh", ()))
    if scalars:
        saved: dict[str, Any] = {key: arrays[key] for key in PRIORITY_ARRAYS}
        engine.restore_priorities(**saved, **scalars)
    return buffer


def _describe(buffer: ReplayBuffer) -> tuple[dict[str, Any], dict[str, Array]]:
    """The parts small enough for JSON, and the marks of the streams and priorities as arrays."""
    from sharpwave import __version__

    engine = buffer._engine
    description = {
        "format": FORMAT,
        "version": VERSION,
        "library": __version__,
        "class": type(buffer).__name__,
        "schema": buffer.schema.to_json(),
        "options": buffer._options,
        "heads": engine.heads(),
        "counters": engine.counters(),
        "scalars": {},
    }
    if queues := dump_queues(engine):
        description["fresh"] = queues
    arrays = {f"marks-{i}": bits for i, bits in enumerate(engine.bitmaps())}
    if buffer.is_prioritized:
        scalars = engine.save_priorities()
        arrays.update({key: scalars.pop(key) for key in PRIORITY_ARRAYS})
        description["scalars"] = {**scalars, "sorted": len(arrays["sorted"])}
    return description, arrays


def _empty(cls: type[BufferT], state: dict[str, Any]) -> BufferT:
    """A buffer of the saved kind without content."""
    buffer = cls.__new__(cls)
    make_again(buffer, state)
    return buffer


def make_again(
    buffer: ReplayBuffer, state: dict[str, Any], make_engine: EngineMaker = engine_in_memory
) -> None:
    """Make a buffer of the saved schema and options."""
    options = dict(state["options"])
    shortcut = options.pop("shortcut")
    schema = Schema.from_json(state["schema"])
    if options["priorities"] is not None:
        options["priorities"] = tuple(options["priorities"])
    dims: tuple[int | None, int | None] = (None, None)
    fields: Schema | None = schema
    if shortcut:
        by_name = {leaf.name: leaf.field for leaf in schema.leaves}
        dims = (by_name["obs"].shape[0], by_name["action"].shape[0])
        fields = None
    buffer._make(options.pop("capacity"), *dims, fields=fields, make_engine=make_engine, **options)


def _pieces(buffer: ReplayBuffer, heads: list[Any]) -> Iterator[tuple[int, int, int, Array]]:
    """(field, first slot, slots, memory) for every piece of every stored column that is in use."""
    engine = buffer._engine
    slots = engine.slots_per_stream
    for field in range(len(buffer.schema.leaves)):
        width = engine.column_bytes(field)
        if width == 0:
            continue
        step = max(1, PIECE_BYTES // width)
        for stream, (_, top, _, _) in enumerate(heads):
            begin, end = stream * slots, stream * slots + min(top, slots)
            for first in range(begin, end, step):
                count = min(step, end - first)
                yield field, first, count, np.empty(count * width, np.uint8)


@contextlib.contextmanager
def _locked_rows(buffer: ReplayBuffer) -> Iterator[None]:
    buffer._engine.lock_rows()
    try:
        yield
    finally:
        buffer._engine.unlock_rows()
