"""A folder of episodes, for the viewer."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from sharpwave.episodes.buffer import EpisodeBuffer
from sharpwave.episodes.table import LostEpisodes
from sharpwave.errors import SharpwaveIOError
from sharpwave.pages.viewer.source import About, Column, EpisodeIndex, Rows
from sharpwave.storage.folder import file_name, read_header
from sharpwave.types import Array

LARGEST_META = 1024
"""Bytes of a field of episodes up to which it is read for all of them."""


class EpisodeSource:
    """The episodes of an `EpisodeBuffer`, and the one that is being written.

    Args:
        path: The folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        header = read_header(path)
        self._buffer, self._damage = _opened(path)
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


def _opened(path: str | os.PathLike[str]) -> tuple[EpisodeBuffer, list[str]]:
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
