"""Sources of rows for the viewer: their interface, folders of episodes, and replay buffers."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from sharpwave.buffers.mmap import MmapReplayBuffer
from sharpwave.buffers.schema import BATCH_NAMES, STEP, Leaf
from sharpwave.buffers.views import Transition
from sharpwave.episodes.buffer import EpisodeBuffer
from sharpwave.episodes.table import LostEpisodes
from sharpwave.errors import SharpwaveIOError
from sharpwave.storage.folder import file_name, read_header
from sharpwave.types import Array

Rows: TypeAlias = npt.NDArray[np.int64]
"""Numbers of rows, or of episodes."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is, and how much there is."""

OPEN, COMPLETE, ABORTED, STRETCH = range(4)
"""State of an episode; a stretch is consecutive rows of a store that knows no episodes."""

STATES = ("open", "complete", "aborted", "rows")
"""The same in words."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A field as the folder keeps it.

    Attributes:
        name: The dotted name.
        dtype: NumPy's name of its dtype.
        shape: Shape of one value.
        role: obs, action, reward, terminated, truncated, next_obs or extra.
        per_episode: One value for an episode instead of one for each step.
        files: Prefix of the names of its files; None when other fields are in them too.
        codec: Compression of its values.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: str = "extra"
    per_episode: bool = False
    files: str | None = None
    codec: str = "none"

    @property
    def size(self) -> int:
        """Numbers in one value."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def row_bytes(self) -> int:
        """Bytes of one value in memory."""
        return self.size * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, kw_only=True)
class EpisodeIndex:
    """A snapshot of the episodes in a folder, ordered by id.

    Attributes:
        ids: [E] that never repeat.
        starts: [E] the first row of each.
        lengths: [E] steps.
        flags: [E] OPEN, COMPLETE, ABORTED or STRETCH.
        meta: One value for each episode, by name.
    """

    ids: Rows
    starts: Rows
    lengths: Rows
    flags: Array
    meta: dict[str, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, kw_only=True)
class About:
    """Facts about a folder that are known before a row is read.

    Attributes:
        kind: episodes or replay.
        path: The folder.
        library: The version of this library that made it.
        version: The version of its format.
        options: Options that it was made with.
        notes: Notes on parts that the viewer cannot show.
    """

    kind: str
    path: Path
    library: str
    version: int
    options: dict[str, Any]
    notes: tuple[str, ...] = ()


class Source(Protocol):
    """An open folder. Rows are numbered in the order of the episodes that hold them."""

    @property
    def about(self) -> About:
        """Facts that are known before a row is read."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The fields, those of the steps first."""

    def refresh(self) -> None:
        """See what a writer has committed since."""

    def episodes(self) -> EpisodeIndex:
        """All episodes, complete or not."""

    def read(self, rows: Rows, field: str) -> Array:
        """Values [n, *shape] of the steps at `rows`, of one field.

        Raises:
            IndexError: A row is no longer there.
        """

    def damage(self, *, verify: bool) -> list[str]:
        """Damage of the folder, in words; with `verify` by comparing the checksums of all files."""

    def close(self) -> None:
        """Let the folder go."""


LARGEST_META = 1024
"""Bytes of a field of episodes up to which it is read for all of them."""


class EpisodeSource:
    """The episodes of an `EpisodeBuffer`, and the one that is being written.

    Args:
        path: The folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        header = read_header(path)
        self._buffer, self._damage = _open_episodes(path)
        schema = self._buffer.schema
        codecs = {one["name"]: str(one.get("codec") or "none") for one in header["columns"]}
        self.columns = tuple(
            Column(
                name=name,
                dtype=field.dtype,
                shape=field.shape,
                role=field.role,
                per_episode=per_episode,
                files=file_name(name),
                codec=codecs.get(name, "none"),
            )
            for per_episode, fields in ((False, schema.fields), (True, schema.meta_fields))
            for name, field in fields.items()
        )
        large = [c.name for c in self.columns if c.per_episode and c.row_bytes > LARGEST_META]
        self._small = [c.name for c in self.columns if c.per_episode and c.name not in large]
        notes = [f"the values of {', '.join(large)}, of which every episode has one"] * bool(large)
        self.about = About(
            kind="episodes",
            path=Path(path),
            library=str(header["library"]),
            version=int(header["version"]),
            options=dict(header["options"]),
            notes=tuple(notes),
        )

    def refresh(self) -> None:
        """See what a writer has committed since."""
        self._buffer.refresh()

    def episodes(self) -> EpisodeIndex:
        """All episodes: complete, aborted, and the one that is being written."""
        ids, starts, lengths, flags = self._buffer._engine.table(aborted=True, open=True)
        meta = {name: self._meta(ids, name) for name in self._small}
        return EpisodeIndex(ids=ids, starts=starts, lengths=lengths, flags=flags, meta=meta)

    def _meta(self, ids: Rows, name: str) -> Array:
        """The values [E, ...] of a field of episodes, as far as they are known."""
        fields = self._buffer.schema.meta_fields
        values = np.zeros((len(ids), *fields[name].shape), fields[name].dtype)
        raw = values.reshape(-1).view(np.uint8)
        self._buffer._engine.gather_meta(ids, list(fields).index(name), raw)
        return values

    def read(self, rows: Rows, field: str) -> Array:
        """Values of one field at `rows`."""
        return self._buffer.gather(rows, [field])[field]

    def damage(self, *, verify: bool) -> list[str]:
        """Damage of the folder, in words."""
        if not verify or self._damage:
            return self._damage
        return _words(LostEpisodes.of(self._buffer._engine.verify()))

    def close(self) -> None:
        """Let the folder go."""
        self._buffer.close()


def _open_episodes(path: str | os.PathLike[str]) -> tuple[EpisodeBuffer, list[str]]:
    """The episodes, and what had to be left out of them."""
    try:
        return EpisodeBuffer.from_folder(path, read_only=True), []
    except SharpwaveIOError:
        buffer = EpisodeBuffer.from_folder(path, read_only=True, repair=True)
        return buffer, _words(buffer.lost)


def _words(lost: LostEpisodes) -> list[str]:
    words = list(lost.chunks)
    if lost.ids:
        some = ", ".join(map(str, lost.ids[:20])) + (", …" if len(lost.ids) > 20 else "")
        count = f"{len(lost.ids):,} episode" + "s" * (len(lost.ids) > 1)
        words.append(f"{count} with {lost.n_steps:,} steps cannot be read: {some}")
    return words


STRETCH_ROWS = 1000
"""Rows of a buffer that knows no episodes which are shown together."""

_STREAM = 1 << 40
"""Rows of different environments are this far apart."""

_ONE_FILE = "bytes by field: a row lies in one piece on disk"
_OLDEST = "steps that made room: the oldest episode of an environment then counts as aborted"
_NO_EPISODES = (
    "episodes and returns: the rows are kept in the order they were pushed, and do not say which "
    "environment they came from (n_envs was not given)"
)


class ReplaySource:
    """The steps of an `MmapReplayBuffer`.

    With stream rows the steps of an environment that follow each other are an episode. Otherwise
    consecutive rows are shown together, whatever they are.

    Args:
        path: The folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        header = read_header(path)
        self._path = Path(path)
        self._buffer, self._damage = _open_replay(path)
        self._n_streams = self._buffer.n_envs or 1
        self._tracked = self._buffer.n_envs is not None
        self._runs = [Runs() for _ in range(self._n_streams)]
        leaves = [
            leaf
            for leaf in self._buffer.schema.leaves
            # The next observation of a stream row is that of the next row.
            if not (self._tracked and leaf.argument == "next_obs")
        ]
        self._leaves: dict[str, Leaf] = {leaf.name: leaf for leaf in leaves}
        self.columns = tuple(
            Column(
                name=leaf.name,
                dtype=str(leaf.field.dtype),
                shape=leaf.field.shape,
                role=leaf.argument if leaf.argument in STEP else "extra",
            )
            for leaf in leaves
        )
        self.about = About(
            kind="replay",
            path=Path(path),
            library=str(header["library"]),
            version=int(header["version"]),
            options={
                "total_capacity": self._buffer.total_capacity,
                "hot_capacity": self._buffer.hot_capacity,
                "n_envs": self._buffer.n_envs,
                "prioritized": self._buffer.is_prioritized,
                "durability": header["durability"],
            },
            notes=(_ONE_FILE, _OLDEST if self._tracked else _NO_EPISODES),
        )

    def refresh(self) -> None:
        """Nothing to do: a reader sees what a writer has committed whenever it asks."""

    def episodes(self) -> EpisodeIndex:
        """Steps that follow each other."""
        steps = self._buffer.indices().astype(np.int64)
        return self._of_streams(steps) if self._tracked else _stretches(steps)

    def _of_streams(self, steps: Rows) -> EpisodeIndex:
        streams, places = steps % self._n_streams, steps // self._n_streams
        whole = self._buffer.stats()["pushed"] == len(steps)
        parts = []
        for stream, runs in enumerate(self._runs):
            numbers, starts, lengths = runs.update(places[streams == stream])
            flags = np.full(len(starts), COMPLETE, np.uint8)
            if len(starts):
                flags[0] = COMPLETE if whole else ABORTED
                last = int(starts[-1] + lengths[-1] - 1)
                if not self._ends(last * self._n_streams + stream):
                    flags[-1] = OPEN
            ids = numbers * self._n_streams + stream
            parts.append((ids, starts + stream * _STREAM, lengths, flags))
        joined = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.argsort(joined[0], kind="stable")
        ids, starts, lengths, flags = (column[order] for column in joined)
        meta = {"env": ids % self._n_streams}
        return EpisodeIndex(ids=ids, starts=starts, lengths=lengths, flags=flags, meta=meta)

    def _ends(self, step: int) -> bool:
        """Return whether a step is the last of its episode."""
        flags = [name for name in ("terminated", "truncated") if name in self._leaves]
        if not flags:
            return False
        batch = self._buffer.gather(np.array([step], np.uint64), view=Transition(tuple(flags)))
        return any(bool(batch[name][0]) for name in flags)

    def read(self, rows: Rows, field: str) -> Array:
        """Values of one field at `rows`."""
        leaf = self._leaves[field]
        name = BATCH_NAMES.get(leaf.argument, leaf.argument)
        streams, places = rows // _STREAM, rows % _STREAM
        ids = (places * self._n_streams + streams).astype(np.uint64)
        value = self._buffer.gather(ids, view=Transition((name,)))[name]
        for key in leaf.path:
            value = value[key]
        return np.asarray(value)

    def damage(self, *, verify: bool) -> list[str]:
        """Damage of the folder, in words."""
        if not verify or self._damage:
            return self._damage
        again, damage = _open_replay(self._path, verify=True)
        again.close()
        return damage

    def close(self) -> None:
        """Let the folder go."""
        self._buffer.close()


def _open_replay(
    path: str | os.PathLike[str], *, verify: bool = False
) -> tuple[MmapReplayBuffer, list[str]]:
    """The buffer, and what had to be left out of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is lost is told by the list
        buffer = MmapReplayBuffer.open(path, read_only=True, verify=verify, repair=True)
    damage = list(buffer._engine.damage)
    if damage:
        damage.append(f"{buffer._engine.lost_steps:,} steps cannot be read")
    return buffer, damage


def _stretches(steps: Rows) -> EpisodeIndex:
    """Consecutive rows, cut at round numbers so that a stretch stays what it is."""
    if not len(steps):
        none = np.empty(0, np.int64)
        return EpisodeIndex(ids=none, starts=none, lengths=none, flags=none.astype(np.uint8))
    first, end = int(steps[0]), int(steps[-1]) + 1
    numbers = np.arange(first // STRETCH_ROWS, (end - 1) // STRETCH_ROWS + 1)
    starts = np.maximum(numbers * STRETCH_ROWS, first)
    ends = np.minimum((numbers + 1) * STRETCH_ROWS, end)
    flags = np.full(len(numbers), STRETCH, np.uint8)
    return EpisodeIndex(ids=numbers, starts=starts, lengths=ends - starts, flags=flags)


class Runs:
    """The runs in the places of one environment's steps.

    A place is left out between two episodes, so every run is an episode, or what is left of it.

    Example:
        >>> runs = Runs()
        >>> [column.tolist() for column in runs.update(np.array([0, 1, 2, 4, 5]))]
        [[0, 1], [0, 4], [3, 2]]
        >>> [column.tolist() for column in runs.update(np.array([2, 4, 5, 6, 8]))]
        [[0, 1, 2], [2, 4, 8], [1, 3, 1]]
    """

    def __init__(self) -> None:
        none = np.empty(0, np.int64)
        self._numbers: Rows = none
        self._starts: Rows = none
        self._ends: Rows = none
        self._next = 0

    def update(self, places: Rows) -> tuple[Rows, Rows, Rows]:
        """Number, start and length [n] of every run in ascending places."""
        first = np.ones(len(places), np.bool_)
        first[1:] = np.diff(places) != 1
        starts = places[first]
        ends = np.append(places[np.flatnonzero(first)[1:] - 1], places[-1:]) + 1
        numbers = self._known(starts)
        new = numbers < 0
        numbers[new] = self._next + np.arange(np.count_nonzero(new))
        self._next += int(np.count_nonzero(new))
        self._numbers, self._starts, self._ends = numbers, starts, ends
        return numbers, starts, ends - starts

    def _known(self, starts: Rows) -> Rows:
        """The numbers of runs that were there before, -1 for the others."""
        if not len(self._starts):
            return np.full(len(starts), -1)
        at = np.searchsorted(self._starts, starts, side="right") - 1
        same = (at >= 0) & (starts < self._ends[at])
        numbers: Rows = np.where(same, self._numbers[at], -1)
        return numbers
