"""Folders of `EpisodeBuffer`, read and written as a whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave.errors import SharpwaveIOError
from sharpwave.formats.dotted import tree
from sharpwave.formats.stream import Episode, EpisodeStream
from sharpwave.formats.target import new_target
from sharpwave.storage.folder import StoreFolder, is_store, read_header
from sharpwave.storage.handles import Handles
from sharpwave.types import Array

KIND = "episodes"
LARGE_META_BYTES = 256


def detect(path: Path) -> bool:
    """Return whether this is a folder of episodes."""
    try:
        return is_store(path) and read_header(path)["kind"] == KIND
    except SharpwaveIOError:
        return False


def read(path: str | os.PathLike[str], *, aborted: bool = False) -> EpisodeStream:
    """The episodes of a folder, as they are now.

    Args:
        path: The folder.
        aborted: Give episodes, too, that were cut before their end; what is written of them cannot
            be told from others.

    Raises:
        SharpwaveIOError: It is no such folder, or damaged.
    """
    from sharpwave.episodes.buffer import EpisodeBuffer

    return stream_of(EpisodeBuffer.from_folder(path, read_only=True), aborted=aborted)


def stream_of(buffer: Any, *, aborted: bool = False) -> EpisodeStream:
    """The episodes of a buffer, as they are now.

    Args:
        buffer: An `EpisodeBuffer`, or another reader of episodes.
        aborted: Give episodes, too, that were cut before their end.
    """
    table = buffer.episodes(aborted=aborted)

    large = [
        name
        for name, field in buffer.schema.meta_fields.items()
        if field.row_bytes > LARGE_META_BYTES and hasattr(buffer, "_engine")
    ]

    def episodes() -> Iterator[Episode]:
        for number, start in enumerate(table.starts.tolist()):
            rows = np.arange(start, start + int(table.lengths[number]))
            meta = {
                name: _meta_value(buffer, name, int(table.ids[number]))
                if name in large
                else np.asarray(table.meta[name][number])
                for name in buffer.schema.meta_fields
            }
            yield Episode(buffer.gather(rows), meta)

    origin = str(getattr(buffer, "folder", type(buffer).__name__))
    return EpisodeStream(origin, buffer.schema, table.lengths, episodes)


def _meta_value(buffer: Any, name: str, episode: int) -> Array:
    """One value of a meta field, without the others that the table would read along."""
    field = buffer.schema.meta_fields[name]
    value: Array = np.empty((1, *field.shape), field.dtype)
    column = list(buffer.schema.meta_fields).index(name)
    buffer._engine.gather_meta(np.array([episode]), column, value.reshape(-1).view(np.uint8))
    return np.asarray(value[0])


def write(
    stream: EpisodeStream,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    max_episodes: int | None = None,
    max_timesteps: int | None = None,
    **options: Any,
) -> None:
    """Write a folder of episodes.

    Args:
        stream: The episodes.
        path: The folder; it may exist and be empty.
        overwrite: Replace a folder of episodes that nobody writes to.
        max_episodes: Episodes that the folder can hold; by default those that there are.
        max_timesteps: Steps that an episode may have; by default those of the longest.
        **options: Further ones of `EpisodeBuffer`.
    """
    from sharpwave.episodes.buffer import EpisodeBuffer

    with (
        new_folder(path, overwrite=overwrite) as made,
        EpisodeBuffer(
            made,
            max_episodes or max(1, len(stream)),
            max_timesteps or max(1, int(stream.lengths.max(initial=1))),
            stream.schema.fields,
            stream.schema.meta_fields,
            **options,
        ) as buffer,
    ):
        for episode in stream:
            buffer.store_episode(**tree(episode.steps), **tree(episode.meta))


@contextlib.contextmanager
def new_folder(path: str | os.PathLike[str], *, overwrite: bool) -> Iterator[Path]:
    """A path to write a folder of episodes to, which becomes `path` when the block ends well.

    Args:
        path: Path of the folder; it may exist and be empty.
        overwrite: Replace a folder of episodes that nobody writes to.

    Raises:
        SharpwaveIOError: There is something that is not to be replaced.
    """
    path = Path(path)
    is_empty = path.is_dir() and not any(path.iterdir())
    with new_target(path, overwrite=overwrite or is_empty, is_ours=_is_free) as made:
        yield made
        if is_store(path):
            old = StoreFolder.open(path, KIND)
            old.lock()
            Handles.of(path).retire(path)
            old.delete()


def _is_free(path: Path) -> bool:
    return detect(path) or (path.is_dir() and not any(path.iterdir()))
