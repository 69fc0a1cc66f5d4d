"""The folder behind a buffer of episodes: opening it, writing to it in turns, and leaving it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import numpy as np

from sharpwave import _native
from sharpwave.episodes.compression import compression_of
from sharpwave.episodes.layout import open_engine, schema_of
from sharpwave.episodes.table import LostEpisodes
from sharpwave.formats.spec import EpisodeSchema, native_group
from sharpwave.storage.folder import StoreFolder
from sharpwave.storage.handles import Handles
from sharpwave.storage.header import believing

__all__ = ["OpenFolder"]

Self = TypeVar("Self", bound="OpenFolder")


class OpenFolder(_native.EpisodeRows):
    """Reads a folder of episodes, and writes to it when it has the lock.

    It is opened for reading first; a write takes the lock, from another buffer of this process
    where that has no episode open.
    """

    schema: EpisodeSchema
    lost: LostEpisodes

    @property
    def folder(self) -> Path:
        """Path of the folder of the episodes."""
        return self._folder.path

    def _start(
        self,
        folder: StoreFolder,
        *,
        read_only: bool,
        write: bool,
        durability: str,
        repair: bool = False,
    ) -> None:
        self._folder = folder
        self._handles = Handles.of(folder.path)
        self._has_ended = False
        self.schema = schema_of(folder)
        self.read_only = read_only
        self.durability = durability
        self.lost = LostEpisodes()
        with believing(folder.path):
            self._groups = (native_group(self.schema.nest), native_group(self.schema.meta_nest))
        sizes = {name: np.dtype(f.dtype).itemsize for name, f in self.schema.fields.items()}
        self._compression = compression_of(folder, sizes)
        with self._handles.lock:
            if write:
                self._open_for_writing(repair=repair)
            else:
                self._open_for_reading(repair=repair)
                self.lost = LostEpisodes.of(self._engine.repaired, folder.repairs)
            self._handles.add(self)

    def _open_for_reading(self, *, repair: bool = False) -> None:
        with believing(self.folder):
            engine = open_engine(self._folder, self.durability, write=False, repair=repair)
            self._attach(engine, *self._groups)

    def _open_for_writing(self, *, repair: bool = False) -> None:
        if self.read_only:
            raise RuntimeError(f"{self.folder} was opened read-only")
        with self._handles.lock:
            if self._has_ended or (not self._is_closed and self._engine.is_writer):
                return  # another thread was faster
            if not repair:  # which is for nobody else's rows
                self._handles.step_back()
            self._folder.lock()
            try:
                if repair and self._compression is not None:
                    self._compression.set_aside_damaged()
                with believing(self.folder):
                    engine = open_engine(self._folder, self.durability, write=True, repair=repair)
            except BaseException:
                self._folder.unlock()
                raise
            self._folder.keep_copy()
            self._attach(engine, *self._groups)
            self.lost = LostEpisodes.of(engine.repaired, self._folder.repairs)

    def _is_writer(self) -> bool:
        return self._folder.is_locked

    def _step_back(self) -> None:
        """Let another buffer of this process write, unless an episode is open."""
        if not self._engine.close_if_idle():
            return
        try:
            self._open_for_reading()
        finally:
            self._folder.unlock()

    def _writer(self) -> _native.EpisodeEngine:
        """The store, open for writing."""
        if not self._engine.is_writer:
            self._open_for_writing()
        return self._engine

    def _compress(self) -> None:
        if self._compression is not None:
            self._compression.compress(self)

    def _decompress(
        self, engine: _native.EpisodeEngine, places: list[tuple[int, int, int]]
    ) -> None:
        """Called by `gather` and `gather_ranges` for rows that are not in memory."""
        assert self._compression is not None
        self._compression.decompress(engine, places)

    def flush(self) -> None:
        """Wait until all that was stored outlives the loss of power. Does nothing for a reader."""
        if self._engine.is_writer:
            self._engine.flush()
            self._compress()

    def close(self) -> None:
        """Flush and let the folder go; an open episode is aborted. Nothing can be done after it."""
        if self._is_closed:
            return
        with self._handles.lock:
            try:
                if not self._has_ended and self._is_writer():
                    if self._compression is not None:
                        self.flush()
                    self._engine.close()
            finally:
                self._end("the buffer is closed")

    def _retire(self, reason: str) -> None:
        if self._compression is not None:
            self._compression.stop()
        try:
            if self._is_writer():
                self._engine.abandon()
        finally:
            self._end(reason)

    def _end(self, reason: str) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        self._handles.remove(self)
        self._attach(reason, *self._groups)
        self._folder.unlock()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()
