"""Parquet and Arrow: a folder with a table of steps and a table of episodes.

`steps.parquet` (or `steps.arrow`) has one row per step: `_episode`, `_step` and one column per
field, lists of a fixed size where a field has a shape (flat; the description has the shapes).
`episodes.parquet` has one row per episode: `_length` and one column per meta field. Everything is
carried.

Tables of others, one file or a folder of files, are read by the names of their columns (see
`flat.NAMES`) and cut into episodes by a column `episode_index`, `episode_id` or `episode`, or else
where a flag is set.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sharpwave.core.optional import require
from sharpwave.errors import SharpwaveIOError
from sharpwave.formats.flat_columns import described_stream, foreign_stream
from sharpwave.formats.spec import EpisodeField, describe, described
from sharpwave.formats.stream import EpisodeStream, warn_not_carried
from sharpwave.formats.tables import (
    MAGIC,
    Tables,
    TableWriter,
    arrow_type,
    is_numeric,
    rows_of_a_group,
    to_arrow,
)
from sharpwave.formats.target import existing_file, new_target, starts_with
from sharpwave.types import Array

EPISODE_COLUMNS = ("_episode", "episode_index", "episode_id", "episode")
COUNTERS = ("_step", "step_index", "frame_index", "index")
"""Columns that only count, which every reader of ours knows anyway."""


def detect(path: Path, kind: str) -> bool:
    """Return whether this is a file of the kind, or a folder that holds some."""
    if path.is_dir():
        return any(starts_with(file, MAGIC[kind]) for file in path.glob(f"*.{kind}"))
    return starts_with(path, MAGIC[kind])


def read(path: str | os.PathLike[str], kind: str, *, keep_next_obs: bool = False) -> EpisodeStream:
    """The episodes of a folder, or of one file, of tables.

    In tables of others, columns that are no numbers are not carried: a warning names them.

    Args:
        path: The folder or file.
        kind: "parquet" or "arrow".
        keep_next_obs: In tables of another library, keep `next_obs` as an ordinary field instead of
            its last one as `final_obs`.

    Raises:
        SharpwaveIOError: It is no such folder or file, or damaged.
        ValueError: It does not say where episodes end, or contradicts itself.
    """
    path = existing_file(path, f"a table of {kind}", lambda found: detect(found, kind))
    steps = path / f"steps.{kind}"
    if steps.is_file():
        tables = Tables(str(steps), [steps], kind)
        note = (tables.schema.metadata or {}).get(b"sharpwave")
        if note is not None:
            return _ours(path, kind, tables, note.decode())
    files = sorted(path.glob(f"*.{kind}")) if path.is_dir() else [path]
    return _foreign(Tables(str(path), files, kind), keep_next_obs)


def write(
    stream: EpisodeStream,
    path: str | os.PathLike[str],
    kind: str,
    *,
    overwrite: bool = False,
    compress: bool = True,
) -> None:
    """Write a folder of tables.

    Args:
        stream: The episodes.
        path: The folder.
        kind: "parquet" or "arrow".
        overwrite: Replace a folder of such tables that is there.
        compress: Compress with zstd.
    """
    schema = stream.schema
    with new_target(path, overwrite=overwrite, is_ours=lambda found: detect(found, kind)) as made:
        made.mkdir()
        note = {"sharpwave": describe(schema)}
        with (
            _writer(
                made, "steps", kind, ("_episode", "_step"), schema.fields, note, compress
            ) as steps,
            _writer(
                made, "episodes", kind, ("_length",), schema.meta_fields, {}, compress
            ) as episodes,
        ):
            for number, episode in enumerate(stream):
                length = int(stream.lengths[number])
                counters = {"_episode": np.full(length, number), "_step": np.arange(length)}
                steps.write(_columns({**counters, **episode.steps}))
                # A view of the steps would keep them in memory as long as it waits.
                meta = {name: np.array([value]) for name, value in episode.meta.items()}
                episodes.write(_columns({"_length": np.array([length]), **meta}))


def _writer(
    folder: Path,
    name: str,
    kind: str,
    counters: tuple[str, ...],
    fields: Mapping[str, EpisodeField],
    note: dict[str, str],
    compress: bool,
) -> TableWriter:
    types: dict[str, tuple[str, tuple[int, ...]]] = dict.fromkeys(counters, ("int64", ()))
    types |= {name: (field.dtype, field.shape) for name, field in fields.items()}
    schema = require("pyarrow", extra="arrow").schema(
        [(name, arrow_type(*of)) for name, of in types.items()], metadata=note
    )
    rows = rows_of_a_group(types.values())
    return TableWriter(folder / f"{name}.{kind}", kind, schema, rows, compress=compress)


def _columns(rows: Mapping[str, Array]) -> dict[str, Any]:
    return {name: to_arrow(values) for name, values in rows.items()}


def _ours(path: Path, kind: str, steps: Tables, note: str) -> EpisodeStream:
    schema = described(str(path), note)
    episodes = path / f"episodes.{kind}"
    if not episodes.is_file():
        raise SharpwaveIOError(f"{path} has no episodes.{kind}")
    table = Tables(str(episodes), [episodes], kind)
    lengths = table.column("_length").astype(np.int64)
    shapes = {name: field.shape for name, field in schema.fields.items()}
    meta_shapes = {name: field.shape for name, field in schema.meta_fields.items()}
    return described_stream(
        steps.columns(list(shapes), shapes),
        table.columns(list(meta_shapes), meta_shapes),
        schema,
        str,
        str,
        lengths,
    )


def _foreign(tables: Tables, keep_next_obs: bool) -> EpisodeStream:
    episode = next((name for name in EPISODE_COLUMNS if name in tables.schema.names), None)
    counters = COUNTERS if episode is not None else ()
    names = [name for name in tables.schema.names if name != episode and name not in counters]
    numeric = [name for name in names if is_numeric(tables.schema.field(name).type)]
    warn_not_carried([name for name in names if name not in numeric], "no numbers")
    lengths = None if episode is None else runs(tables, episode)
    return foreign_stream(tables.columns(numeric, {}), lengths=lengths, keep_next_obs=keep_next_obs)


def runs(tables: Tables, episode: str) -> npt.NDArray[np.int64]:
    """Lengths of the runs of consecutive rows with one episode number."""
    numbers = tables.column(episode)
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 1))
    if len(np.unique(numbers)) != len(starts):
        raise ValueError(f"{tables.origin}: the rows of an episode must be together in {episode!r}")
    return np.diff(starts, append=len(numbers)).astype(np.int64)
