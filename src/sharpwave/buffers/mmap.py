"""Memory-mapped replay on disk: larger than memory, and persistent."""

from __future__ import annotations

import contextlib
import errno
import os
import warnings
import weakref
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

from sharpwave import _native
from sharpwave.buffers.fresh_queues import read_queues, write_queues
from sharpwave.buffers.mmap_layout import check_header, describe_columns
from sharpwave.buffers.prioritized import PriorityControls, priority_options
from sharpwave.buffers.replay import check_count, engine_arguments
from sharpwave.buffers.schema import FieldSpec, Schema
from sharpwave.buffers.snapshot import make_again
from sharpwave.errors import SharpwaveIOError
from sharpwave.storage.folder import StoreFolder
from sharpwave.storage.handles import Handles
from sharpwave.storage.header import believing, identity_of

KIND = "replay"

Self = TypeVar("Self", bound="MmapReplayBuffer")
Durability = Literal["process", "power"]


class MmapReplayBuffer(PriorityControls):
    """Memory-mapped replay buffer: the newest `total_capacity` steps in a folder on disk.

    The newest `hot_capacity` stay in memory. It does what `ReplayBuffer` does, and with
    `prioritized` what `PrioritizedReplayBuffer` does: the same pushes, draws, views and selectors
    over all steps, hot and cold. Rows are written to memory that the system maps to files, so a
    push does not wait for the disk, and a process that is killed loses nothing that it had pushed.

    The folder has one writer at a time. Any number of other processes may `open` it read-only; they
    see what the writer pushed, up to its last step, whenever they ask for something.

    Pages of cold steps come into memory when they are drawn, all of a batch at once, and leave it
    when there are more than `resident_bytes` of them.

    The folder stays: after `close()`, a `with` block, the end of the buffer's life or of the
    process, and after a crash. `MmapReplayBuffer.open` goes on with what is there: steps,
    priorities, counters and the state of the generator. `close(delete=True)` deletes it.

    Args:
        hot_capacity: Steps whose pages are never released, the newest ones.
        total_capacity: Steps to keep; the oldest go first.
        obs_dim: As in `ReplayBuffer`.
        act_dim: As in `ReplayBuffer`.
        cold_path: The folder. It is made, with those above it. Where something is already, it is
            never touched: a store of ours raises too, unless `overwrite` is True.
        fields: As in `ReplayBuffer`.
        n_envs: As in `ReplayBuffer`.
        seed: As in `ReplayBuffer`.
        prioritized: Draw by priority. A mapping gives alpha, beta, kind, stratified and weight_norm
            as for `PrioritizedReplayBuffer`.
        durability: "process": what was pushed survives the end of the process, however it comes;
            and after a loss of power, what the last `flush` or a full chunk brought to the disk.
            "power": a push returns when it is on the disk, which takes milliseconds.
        resident_bytes: Bytes of the files that may be in this process's memory, but for some MiB
            that are just being written; by default a quarter of the machine's. The hot steps stay
            even if they are more.
        overwrite: Replace a store of ours at `cold_path` that no other living process writes to.
            Buffers of this process that have it open are closed: what is asked of them later
            raises.

    Raises:
        TypeError, ValueError: For arguments that make no sense, by name.
        SharpwaveIOError: `cold_path` holds something else, or cannot be written.
        FolderLockedError: A living process writes to it.

    Example:
        >>> import numpy as np, tempfile
        >>> folder = tempfile.mkdtemp() + "/replay"
        >>> with MmapReplayBuffer(1_000, 100_000, obs_dim=3, act_dim=1, cold_path=folder) as buffer:
        ...     buffer.push(np.zeros(3), 0.5, 1.0, False, False, np.ones(3))
        >>> buffer = MmapReplayBuffer.open(folder)
        >>> buffer.sample(1, seed=7)["rewards"]
        array([1.], dtype=float32)
        >>> buffer.close()
    """

    __slots__ = ("_finalizer", "_folder", "_handles", "_read_only")

    def __init__(
        self,
        hot_capacity: int,
        total_capacity: int,
        obs_dim: int | None = None,
        act_dim: int | None = None,
        cold_path: str | os.PathLike[str] | None = None,
        *,
        fields: Mapping[str, FieldSpec] | Schema | None = None,
        n_envs: int | None = None,
        seed: int = 0,
        prioritized: bool | Mapping[str, Any] = False,
        durability: Durability = "process",
        resident_bytes: int | None = None,
        overwrite: bool = False,
    ) -> None:
        if cold_path is None:
            raise TypeError("cold_path must be given: the folder to keep steps in")
        total_capacity = check_count("total_capacity", total_capacity, 1)
        hot_capacity = check_count("hot_capacity", hot_capacity, 1)
        if hot_capacity > total_capacity:
            raise ValueError(
                f"hot_capacity must be at most total_capacity, {total_capacity}, got {hot_capacity}"
            )
        resident_bytes = _check_resident_bytes(resident_bytes)
        _check_durability(durability)
        priorities = None
        if prioritized is not False:
            given = {} if prioritized is True else dict(_check_mapping(prioritized))
            priorities = priority_options(**given)
        make_engine = partial(
            self._create,
            path=_absolute(cold_path),
            description={"hot_capacity": hot_capacity, "durability": durability},
            resident_bytes=resident_bytes,
            overwrite=overwrite,
        )
        try:
            self._make(
                total_capacity,
                obs_dim,
                act_dim,
                fields=fields,
                n_envs=n_envs,
                seed=seed,
                priorities=priorities,
                make_engine=make_engine,
            )
        except BaseException:
            if hasattr(self, "_folder"):  # a store that nobody has seen
                self._finalizer()
                self._folder.lock()
                self._folder.delete()
            raise

    @classmethod
    def open(
        cls: type[Self],
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        continue_episodes: bool = False,
        durability: Durability | None = None,
        resident_bytes: int | None = None,
        verify: bool = False,
        repair: bool = False,
    ) -> Self:
        """The buffer in a folder. It goes on exactly where its writer stopped, or was stopped.

        Ranks (`kind="rank"`) are brought up to date, which they are from time to time anyway.

        Args:
            path: The folder.
            read_only: Write nothing, and see what a writer beside us pushes.
            continue_episodes: The next pushes go on with the episodes that were open. Otherwise
                these end where they are, so that no window spans two runs.
            durability: As in the constructor; by default what was chosen there.
            resident_bytes: As in the constructor.
            verify: Read everything and compare it with its checksums.
            repair: Do that, and go on without steps that are damaged and the older ones of their
                environment, with a warning that says what is lost. A damaged header is taken from
                its copy.

        Raises:
            SharpwaveIOError: There is no buffer, or it is damaged: the file is named.
            FolderLockedError: Another living process writes to it, and `read_only` is False.
        """
        _check_durability(durability)
        resident_bytes = _check_resident_bytes(resident_bytes)
        folder = StoreFolder.open(_absolute(path), KIND, repair=repair)
        if not read_only:
            folder.lock()
        buffer = cls.__new__(cls)
        make_engine = partial(
            buffer._attach,
            folder=folder,
            read_only=read_only,
            continue_episodes=continue_episodes,
            durability=durability,
            resident_bytes=resident_bytes,
            verify=verify or repair,
            repair=repair,
        )
        try:
            with believing(folder.path):
                make_again(buffer, folder.header, make_engine=make_engine)
        except BaseException:
            folder.unlock()
            raise
        if buffer.damage:
            warnings.warn(
                f"{folder.path} lost {buffer._engine.lost_steps} steps: {'; '.join(buffer.damage)}",
                stacklevel=2,
            )
        return buffer

    @property
    def damage(self) -> tuple[str, ...]:
        """Damage found in the files when the buffer was opened with `repair`, in words."""
        return (*self._folder.repairs, *self._engine.damage)

    def _create(
        self,
        schema: Schema,
        options: dict[str, Any],
        *,
        path: Path,
        description: dict[str, Any],
        resident_bytes: int,
        overwrite: bool,
    ) -> _native.Engine:
        """The engine over a new folder."""
        try:
            columns, n_words = describe_columns(schema, options)
        except MemoryError:
            raise MemoryError(f"there is no room for capacity {options['capacity']}") from None
        folder = StoreFolder.create(
            path,
            KIND,
            {"schema": schema.to_json(), "options": options, **description, "columns": columns},
            n_words,
            overwrite=overwrite,
        )
        try:
            return self._attach(schema, options, folder=folder, resident_bytes=resident_bytes)
        except BaseException:
            folder.delete()
            raise

    def _attach(
        self,
        schema: Schema,
        options: dict[str, Any],
        *,
        folder: StoreFolder,
        read_only: bool = False,
        continue_episodes: bool = False,
        durability: Durability | None = None,
        resident_bytes: int = 0,
        verify: bool = False,
        repair: bool = False,
    ) -> _native.Engine:
        """The engine over an existing folder, which is ours until the buffer's end."""
        check_header(folder.header, schema, options)
        column = folder.header["columns"][0]
        engine = _native.Engine(
            *engine_arguments(schema, options),
            {
                "path": os.fspath(folder.path),
                "read_only": read_only,
                "row_bytes": column["row_bytes"],
                "chunk_rows": column["chunk_rows"],
                "max_chunks": column["max_chunks"],
                "power": (durability or folder.header["durability"]) == "power",
                "continue_episodes": continue_episodes,
                "verify": verify,
                "repair": repair,
                "identity": identity_of(folder.header),
                "hot_rows": -(-folder.header["hot_capacity"] // (options["n_envs"] or 1)),
                "resident_bytes": resident_bytes,
            },
        )
        read_queues(engine, folder.path)
        if not read_only:
            folder.keep_copy()
        self._folder = folder
        self._read_only = read_only
        self._handles = Handles.of(folder.path)
        self._handles.add(self)
        # Also at the end of the interpreter, where objects may not be collected.
        self._finalizer = weakref.finalize(self, _leave, engine, folder)
        return engine

    @property
    def path(self) -> Path:
        """The folder."""
        return self._folder.path

    @property
    def hot_capacity(self) -> int:
        """Steps whose pages are never released."""
        return int(self._folder.header["hot_capacity"])

    @property
    def total_capacity(self) -> int:
        """Steps the buffer keeps at most."""
        return self.capacity

    @property
    def read_only(self) -> bool:
        """True if nothing can be pushed."""
        return self._read_only

    @property
    def closed(self) -> bool:
        """True if `close` was called."""
        return not self._finalizer.alive

    def is_empty(self) -> bool:
        """Return whether there are no steps."""
        return len(self) == 0

    def flush(self) -> None:
        """Wait until everything pushed is on the disk, where a loss of power cannot take it.

        Raises:
            SharpwaveIOError: The disk refuses, or refused in the background since the last flush.
        """
        self._engine.flush()
        if self._is_writer():
            write_queues(self._engine, self.path)

    def close(self, delete: bool = False) -> None:
        """Leave the folder, after which the buffer is of no use. `open` goes on with the folder.

        Args:
            delete: Delete the folder. A read-only buffer and a forked process never do.
        """
        delete = delete and self._is_writer()
        self._end("the buffer is closed", keep=not delete, delete=delete)

    def _end(self, reason: str, *, keep: bool, delete: bool = False) -> None:
        """Leave the folder; with `keep` as it should be found again."""
        with self._handles.lock:
            left = self._finalizer.detach()
            if left is None:  # it has ended already
                return
            self._handles.remove(self)
            engine, folder = left[2]
            try:
                if keep and self._is_writer():
                    write_queues(engine, folder.path)
                engine.close(keep=keep, reason=reason)
                if delete:
                    folder.delete()
            finally:
                folder.unlock()

    def _is_writer(self) -> bool:
        return not self._read_only and self._folder.is_locked

    def _step_back(self) -> None:
        """Nothing: a buffer writes as long as it is open."""

    def _retire(self, reason: str) -> None:
        self._end(reason, keep=False)

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(delete=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Copy the folder as it is now; `load` or `open` the copy.

        Pushes of other threads wait until it is done.

        Raises:
            SharpwaveIOError: There is something at `path` already, or it cannot be written.
        """
        from sharpwave.storage.folder_copy import copy_store

        engine = self._engine  # raises where another has taken the folder
        if self.read_only:
            raise SharpwaveIOError(
                errno.EROFS, f"{self.path} is open read-only; its writer can save it"
            )
        path = _absolute(path)
        if os.path.lexists(path):  # before all rows are written
            raise SharpwaveIOError(errno.EEXIST, f"there is something at {path} already")
        self.flush()
        lead = max(leaf.field.stack for leaf in self.schema.leaves)
        copy_store(self._folder, engine, lead, path)

    @classmethod
    def load(cls: type[Self], path: str | os.PathLike[str]) -> Self:
        """The buffer of a folder that `save` wrote, to go on with in that folder."""
        return cls.open(path, continue_episodes=True)

    def stats(self) -> dict[str, Any]:
        """The numbers of `ReplayBuffer.stats`, disk_bytes, resident_bytes, and about priorities."""
        if self._options["priorities"] is None:
            return super(PriorityControls, self).stats()
        return super().stats()

    def _push_record(self, record: Any) -> None:
        """`push` of an object that has the fields as attributes."""
        try:
            step = {name: getattr(record, name) for name in self.schema.fields}
        except AttributeError as error:
            raise TypeError(
                "push() takes the fields of a step, or one object with all of them as attributes: "
                f"{error}"
            ) from None
        self.push(**step)

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickled buffer opens its folder read-only: there can be only one writer."""
        if self.closed:
            self._engine  # noqa: B018 - raises and says why
        return _open_read_only, (type(self), self.path)

    def __repr__(self) -> str:
        if hasattr(self, "_schema") and self.closed:
            return f"{type(self).__name__}(closed: {self.path})"
        return super().__repr__()

    @classmethod
    def _for_schema(
        cls: type[Self], schema: Schema, capacity: int, n_envs: int, options: dict[str, Any]
    ) -> Self:
        hot_capacity = options.pop("hot_capacity", capacity)
        return cls(hot_capacity, capacity, fields=schema, n_envs=n_envs, **options)


def _open_read_only(cls: type[Self], path: Path) -> Self:
    return cls.open(path, read_only=True)


def _leave(engine: _native.Engine, folder: StoreFolder) -> None:
    """The end of a buffer that nobody closed."""
    try:
        if folder.is_locked and folder.path.exists():
            write_queues(engine, folder.path)
        engine.close(keep=True)
    except SharpwaveIOError:
        if folder.path.exists():  # nobody removed it meanwhile
            raise
    finally:
        folder.unlock()


def _absolute(path: str | os.PathLike[str]) -> Path:
    """The path, which stays what it is when the process changes its folder."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be a string or a path, got {type(path).__name__}")
    if not os.fspath(path):
        raise ValueError("path must not be empty")
    return Path(path).absolute()


def _check_mapping(prioritized: object) -> Mapping[str, Any]:
    if not isinstance(prioritized, Mapping):
        raise TypeError(
            f"prioritized must be a bool or a mapping of options, got {type(prioritized).__name__}"
        )
    return prioritized


def _check_durability(durability: object) -> None:
    if durability not in (None, "process", "power"):
        raise ValueError(f'durability must be "process" or "power", got {durability!r}')


def _check_resident_bytes(resident_bytes: int | None) -> int:
    if resident_bytes is not None:
        return check_count("resident_bytes", resident_bytes, 1)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):  # there may be no such limit
        memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return memory // 4
