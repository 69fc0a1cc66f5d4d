"""A folder of episodes, for the viewer."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from sharpwave.buffers.folder import file_name, read_header
from sharpwave.episodes.buffer import EpisodeBuffer
from sharpwave.episodes.viewer.source import OPEN, About, Column, Episodes, Progress, Rows
from sharpwave.types import Array

LARGEST_META = 256
"""Bytes of a field of episodes up to which it is read for all of them."""


class EpisodeSource:
    """The episodes of an `EpisodeBuffer`, and the one that is being written.

    Args:
        path: The folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        header = read_header(path)
        self._buffer = EpisodeBuffer.from_folder(path, read_only=True)
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

    def episodes(self) -> Episodes:
        """All episodes: complete, aborted, and the one that is being written."""
        table = self._buffer.episodes(aborted=True)
        found = Episodes(
            ids=table.ids,
            starts=table.starts,
            lengths=table.lengths,
            flags=table.flags,
            meta={name: table.meta[name] for name in self._small},
        )
        return self._with_open(found)

    def _with_open(self, done: Episodes) -> Episodes:
        """Steps after the last episode that ended belong to the one that did not."""
        engine = self._buffer._engine
        start = int((done.starts + done.lengths).max(initial=engine.steps_front))
        if engine.steps_top <= start:
            return done
        ids = np.append(done.ids, done.ids[-1] + 1 if len(done) else 0)
        return Episodes(
            ids=ids,
            starts=np.append(done.starts, start),
            lengths=np.append(done.lengths, engine.steps_top - start),
            flags=np.append(done.flags, np.uint8(OPEN)),
            meta={
                name: np.concatenate([values, self._meta_of(int(ids[-1]), name)])
                for name, values in done.meta.items()
            },
        )

    def _meta_of(self, episode: int, name: str) -> Array:
        """The value [1, ...] of a field of one episode, as far as it is known."""
        fields = self._buffer.schema.meta_fields
        values = np.zeros((1, *fields[name].shape), fields[name].dtype)
        raw = values.reshape(-1).view(np.uint8)
        self._buffer._engine.gather_meta(np.array([episode]), list(fields).index(name), raw)
        return values

    def read(self, rows: Rows, field: str) -> Array:
        """Values of one field at `rows`."""
        return self._buffer.gather(rows, [field])[field]

    def verify(self, progress: Progress | None) -> list[str]:
        """What is damaged, in words."""
        return []

    def close(self) -> None:
        """Let the folder go."""
        self._buffer.close()
