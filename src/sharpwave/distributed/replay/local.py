"""Replay shards in this process: around a buffer, and around the folder of another writer."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave.buffers import MmapReplayBuffer, ReplayBuffer
from sharpwave.buffers.schema import Schema
from sharpwave.buffers.views import View
from sharpwave.core.tree import map_leaves
from sharpwave.distributed.replay.columns import nested
from sharpwave.distributed.replay.shard import NO_IDS, Answer, Description, Drawn, State
from sharpwave.errors import ShardGone, SharpwaveIOError
from sharpwave.storage.header import identity_of
from sharpwave.types import Array, BatchDict, Ids

__all__ = ["FolderShard", "LocalShard"]


class LocalShard:
    """A shard around a buffer of this process.

    Args:
        buffer: The buffer; None to make it once the fields of a step are known.
        make: Makes it, of a schema and a number of streams.
        plan: Its capacity, and alpha where it has priorities, known before it is made.
        name: Its name in errors.

    Raises:
        TypeError: There is neither a buffer nor what makes one.
        ValueError: The buffer draws by rank, which is an order among its own steps only.
    """

    is_near = True

    def __init__(
        self,
        buffer: ReplayBuffer | None = None,
        *,
        make: Callable[[Schema, int | None], ReplayBuffer] | None = None,
        plan: tuple[int, float | None] = (0, None),
        name: str = "a shard in this process",
    ) -> None:
        if buffer is None and make is None:
            raise TypeError("buffer or make must be given, got neither")
        self.name = name
        self._make, self._plan = make, plan
        self._lock = threading.Lock()
        self._life = 0
        self._buffer: ReplayBuffer | None = None
        if buffer is not None:
            self._take(buffer)

    def _take(self, buffer: ReplayBuffer) -> None:
        priorities = buffer._options["priorities"]
        if priorities is not None and priorities[0] != "proportional":
            raise ValueError(
                f'the priorities of a shard must be "proportional", got "{priorities[0]}": ranks '
                "of several shards are not those of the whole"
            )
        self._buffer, self._life = buffer, life_of(buffer)

    @property
    def buffer(self) -> ReplayBuffer:
        """The buffer.

        Raises:
            ValueError: Nobody has said yet what a step is.
        """
        if self._buffer is None:
            raise ValueError(f"{self.name} holds nothing yet: the fields of a step are not known")
        return self._buffer

    def describe(self) -> Description:
        """Description of the steps that it holds."""
        if self._buffer is None:
            return Description(None, None, *self._plan)
        buffer, options = self._buffer, self._buffer._options
        alpha = None if options["priorities"] is None else options["priorities"][1]
        return Description(
            buffer.schema, buffer.n_envs, buffer.capacity, alpha, options["shortcut"]
        )

    def create(self, schema: Schema, n_envs: int | None) -> Description:
        """Have it hold such steps, if it holds none.

        Raises:
            ValueError: It holds others.
        """
        with self._lock:
            if self._buffer is None:
                assert self._make is not None
                self._take(self._make(schema, n_envs))
        held = self.describe()
        check_same(self.name, held, schema, n_envs)
        return held

    def state(self) -> State:
        """State of the shard: its size, sums and counters."""
        with self._lock:
            return self._state()

    def _state(self) -> State:
        buffer = self._buffer
        if buffer is None:
            return State(0, 0, 0.0, float("inf"), 0, 0, 0, 1.0, is_full=False)
        engine = buffer._engine
        size = len(engine)  # the buffer's own length would take in what its writer pushed since
        pushed, sampled, _, stale, _ = engine.counters()
        total, smallest, highest = float(size), 1.0, 1.0
        if buffer.is_prioritized:
            total, smallest = engine.leaf_sums()
            highest = engine.max_priority
        return State(
            self._life, size, total, smallest, pushed, sampled, stale, highest, engine.is_full
        )

    def push(
        self, columns: Mapping[str, Array], streams: Array | None, priorities: Array | None
    ) -> Answer[State]:
        """Push steps to streams of the shard's own."""
        return partial(self._push, columns, streams, priorities)

    def _push(
        self, columns: Mapping[str, Array], streams: Array | None, priorities: Array | None
    ) -> State:
        buffer = self.buffer
        given = nested(buffer.schema, columns)
        if streams is not None:
            given["streams"] = streams
        if priorities is not None:
            given["priorities"] = priorities
        with self._lock:
            buffer.push_batch(**given)
            return self._state()

    def draw(self, count: int, seed: int, view: View | None) -> Answer[Drawn]:
        """Draw steps, with their ids."""
        return partial(self._draw, count, seed, view)

    def _draw(self, count: int, seed: int, view: View | None) -> Drawn:
        buffer = self.buffer
        with self._lock:
            try:
                batch = _sample(buffer, count, seed, view)
            except ValueError as error:  # it is empty, or no step fits the view
                return Drawn(self._state(), None, NO_IDS, None, str(error))
            ids = batch.pop("indices")
            ids = ids if ids.ndim == 1 else ids[:, 0].copy()  # of arrivals every row has one
            leaves = None
            if "weights" in batch:  # these are of this shard alone
                del batch["weights"]
                leaves = buffer._engine.leaves(ids)
            return Drawn(self._state(), batch, ids, leaves)

    def sample(self, batch_size: int, seed: int, view: View | None) -> BatchDict | None:
        """A batch of the only shard of a replay, where it needs nothing but the steps.

        None where there are priorities, or something is wrong: `draw` says what.
        """
        buffer = self._buffer
        is_plain = view is None or view._spec is not None
        if buffer is None or buffer.is_prioritized or not is_plain:
            return None
        try:
            return buffer.sample(batch_size, seed, view=view)
        except (ValueError, OSError):
            return None

    def update(self, ids: Ids, priorities: Array, life: int) -> Answer[tuple[int, State]]:
        """Set priorities of steps of this life; the number that came too late is returned."""
        return partial(self._update, ids, priorities, life)

    def _update(self, ids: Ids, priorities: Array, life: int) -> tuple[int, State]:
        with self._lock:
            if life != self._life:
                return len(ids), self._state()
            buffer: Any = self.buffer
            try:
                stale = buffer.update_priorities(ids, priorities)
            except IndexError:  # rows that a crash of the machine took
                known = buffer._engine.alive(ids).view(np.bool_)
                buffer.update_priorities(ids[known], np.asarray(priorities)[known])
                stale = int(len(ids) - known.sum())
            return stale, self._state()

    def close(self) -> None:
        """Leave the folder of a buffer that has one; rows in memory stay with the buffer."""
        if isinstance(self._buffer, MmapReplayBuffer):
            self._buffer.close()


class FolderShard(LocalShard):
    """A shard that reads the folder of a buffer which another process may be writing.

    Args:
        path: The folder of an `MmapReplayBuffer`.

    Raises:
        ShardGone: There is no such folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        super().__init__(self._open(), name=os.fspath(path))

    def _open(self) -> MmapReplayBuffer:
        try:
            return MmapReplayBuffer.open(self._path, read_only=True)
        except SharpwaveIOError as error:
            raise ShardGone(f"the folder of a shard must be readable: {error}") from error

    def state(self) -> State:
        """State of the shard, the newest steps of its writer included."""
        with self._lock:
            buffer: Any = self.buffer
            try:
                if buffer.closed:
                    self._take(self._open())
                len(self.buffer)  # takes in what is new
                return self._state()
            except SharpwaveIOError as error:
                buffer.close()
                raise ShardGone(f"the folder of a shard must be readable: {error}") from error

    def push(self, *_: Any) -> Answer[State]:
        """Nothing: another process writes here.

        Raises:
            PermissionError: Always.
        """
        raise PermissionError(f"{self.name} is read only: its writer pushes")

    def update(self, *_: Any) -> Answer[tuple[int, State]]:
        """Nothing: another process writes here.

        Raises:
            PermissionError: Always.
        """
        raise PermissionError(f"{self.name} is read only: its writer sets priorities")


def check_same(name: str, held: Description, schema: Schema, n_envs: int | None) -> None:
    """Refuse a shard that holds other steps.

    Raises:
        ValueError: It does; what differs is named.
    """
    assert held.schema is not None
    if held.n_envs != n_envs:
        raise ValueError(f"{name} must keep {n_envs} streams in order, got {held.n_envs}")
    wanted = schema if n_envs is None else schema.with_next_obs()
    if held.schema != wanted:
        has, needs = ({leaf.name: leaf.field for leaf in s.leaves} for s in (held.schema, wanted))
        other = sorted(x for x in has.keys() | needs.keys() if has.get(x) != needs.get(x))
        first = other[0] if other else "order of fields"
        raise ValueError(
            f"{name} must hold the same steps as the others: {first} must be "
            f"{needs.get(first, 'absent')}, got {has.get(first, 'none')}"
        )


def life_of(buffer: ReplayBuffer) -> int:
    """A number of the rows of a buffer, which those of a folder keep."""
    if not isinstance(buffer, MmapReplayBuffer):
        return secrets.randbits(62) | 1
    found = buffer.path.stat()
    return (identity_of(buffer._folder.header) << 30 | found.st_ino & (2**30 - 1)) | 1


def _sample(buffer: ReplayBuffer, count: int, seed: int, view: View | None) -> BatchDict:
    """Steps of a buffer, of which there may be fewer than are drawn."""
    size = len(buffer)
    if count <= size or size == 0:
        return buffer.sample(count, seed, view=view, indices=True)
    parts = [
        buffer.sample(min(size, count - begin), (seed + begin) % 2**63, view=view, indices=True)
        for begin in range(0, count, size)
    ]
    whole: BatchDict = map_leaves(lambda *arrays: np.concatenate(arrays), *parts)
    return whole
