"""HDF5 in the layout of D4RL: the steps of all episodes one after another in one file.

`observations` (a group where they are nested), `actions`, `rewards`, `terminals` and `timeouts`,
and `infos/NAME` for other fields. The group `episodes` holds what the layout has no place for:
`lengths` [E], `meta/NAME` [E, ...] and a description of the fields, so that everything is carried.
Since readers of the layout find the ends of episodes by the flags alone, `timeouts` is set at an
end that has no flag; `episodes/marked` remembers where.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sharpwave.core.optional import require
from sharpwave.errors import SharpwaveIOError
from sharpwave.formats.dotted import by_role, renamed
from sharpwave.formats.flat_columns import NAMES, FlatColumns, described_stream, foreign_stream
from sharpwave.formats.spec import describe, described
from sharpwave.formats.stream import Episode, EpisodeStream, warn_not_carried
from sharpwave.formats.target import existing_file, new_target, starts_with
from sharpwave.types import Array

SUFFIXES = (".h5", ".hdf5", ".hdf")
META = "episodes/meta/"
D4RL = {
    "obs": "observations",
    "action": "actions",
    "reward": "rewards",
    "terminated": "terminals",
    "truncated": "timeouts",
}


def detect(path: Path) -> bool:
    """Return whether this is an HDF5 file."""
    return starts_with(path, b"\x89HDF\r\n\x1a\n")


def read(path: str | os.PathLike[str], *, keep_next_obs: bool = False) -> EpisodeStream:
    """The episodes of an HDF5 file in the layout of D4RL.

    In files of others, texts and arrays that are no columns of steps are not carried, with a
    warning that names them.

    Args:
        path: The file.
        keep_next_obs: In a file of another library, keep `next_observations` as the field
            `next_obs` instead of its last one as `final_obs`.

    Raises:
        SharpwaveIOError: It is no such file, or damaged.
        ValueError: It has another layout, or contradicts itself.
    """
    path = existing_file(path, "an HDF5 file", detect)
    with _opened(path) as file:
        datasets = dict(datasets_inside(file, path))
        ours = "episodes" in file and "schema" in file["episodes"].attrs
        if not ours:
            return foreign_stream(_foreign_columns(path, datasets), keep_next_obs=keep_next_obs)
        note = file["episodes"]
        schema = described(str(path), note.attrs["schema"])
        lengths = note["lengths"][:].astype(np.int64)
        marked = note["marked"][:]
        kept = {n: dataset for n, dataset in datasets.items() if n.startswith(META)}
        meta = _columns(path, kept)
        steps = _columns(path, {n: d for n, d in datasets.items() if not n.startswith("episodes/")})
    truncated = by_role(schema).get("truncated")

    def unmark(number: int, given: dict[str, Array]) -> None:
        if truncated is not None and marked[number]:
            given[truncated][-1] = 0

    names = renamed(schema, D4RL, "infos/").__getitem__
    return described_stream(steps, meta, schema, names, _meta_name, lengths, unmark)


def write(
    stream: EpisodeStream,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    compress: bool = False,
) -> None:
    """Write an HDF5 file in the layout of D4RL.

    Args:
        stream: The episodes.
        path: The file.
        overwrite: Replace an HDF5 file that is there.
        compress: Compress the columns (gzip).
    """
    h5py = require("h5py", extra="hdf5")
    with (
        new_target(path, overwrite=overwrite, is_ours=detect) as made,
        h5py.File(made, "x") as file,
    ):
        _Writer(file, stream, {"compression": "gzip"} if compress else {}).write()


class _Writer:
    """Fills the datasets of a file, episode by episode."""

    def __init__(self, file: Any, stream: EpisodeStream, options: dict[str, Any]) -> None:
        self.file = file
        self.stream = stream
        self.options = options
        self.roles = by_role(stream.schema)
        self.columns = {
            name: self._dataset(column, stream.n_steps, *_type(stream.schema.fields[name]))
            for name, column in renamed(stream.schema, D4RL, "infos/").items()
        }
        self.flags = {
            role: self.columns[self.roles[role]]
            if role in self.roles
            else self._dataset(D4RL[role], stream.n_steps, np.bool_, ())
            for role in ("terminated", "truncated")
        }
        note = file.create_group("episodes")
        note.attrs["schema"] = describe(stream.schema)
        note["lengths"] = stream.lengths
        self.marked = note.create_dataset("marked", (len(stream),), np.bool_)
        self.meta = {
            name: self._dataset(_meta_name(name), len(stream), *_type(field))
            for name, field in stream.schema.meta_fields.items()
        }

    def _dataset(self, name: str, rows: int, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> Any:
        options = self.options if rows else {}
        return self.file.create_dataset(name, (rows, *shape), dtype, **options)

    def write(self) -> None:
        start = 0
        for number, episode in enumerate(self.stream):
            stop = start + int(self.stream.lengths[number])
            for name, values in episode.steps.items():
                self.columns[name][start:stop] = values
            for name, value in episode.meta.items():
                self.meta[name][number] = value
            if not self._has_end(episode):
                self.flags["truncated"][stop - 1] = 1
                self.marked[number] = True
            start = stop

    def _has_end(self, episode: Episode) -> bool:
        flags = [self.roles[role] for role in self.flags if role in self.roles]
        return any(bool(episode.steps[name][-1]) for name in flags)


def _meta_name(name: str) -> str:
    return META + name.replace("/", "%2F")


def _type(field: Any) -> tuple[str, tuple[int, ...]]:
    return field.dtype, field.shape


def _foreign_columns(path: Path, datasets: dict[str, Any]) -> FlatColumns:
    known = [name for name in datasets if name.partition("/")[0] in NAMES]
    if not known:
        raise ValueError(
            f"{path} must have the layout of D4RL (observations, actions, rewards, terminals, "
            f"timeouts), got {list(datasets)[:8]}"
        )
    n_rows = _n_rows(datasets[known[0]])
    columns = {
        name: dataset
        for name, dataset in datasets.items()
        if name in known or (_n_rows(dataset) == n_rows and dataset.dtype.kind in "biuf")
    }
    left_out = [name for name in datasets if name not in columns]
    warn_not_carried(left_out, f"no columns of {n_rows} numbers")
    return _columns(path, columns)


def _n_rows(dataset: Any) -> int:
    return int(dataset.shape[0]) if dataset.shape else -1


def _columns(path: Path, datasets: dict[str, Any]) -> FlatColumns:
    counts = {name: _n_rows(dataset) for name, dataset in datasets.items()}
    n_rows = next(iter(counts.values()), 0)
    for name, dataset in datasets.items():
        if counts[name] != n_rows or n_rows < 0:
            raise ValueError(
                f"{path}: dataset {name!r} must have {n_rows} rows like {next(iter(counts))!r}, "
                f"got shape {dataset.shape}"
            )
        if dataset.dtype.kind not in "biuf":
            raise ValueError(f"{path}: dataset {name!r} must hold numbers, got {dataset.dtype}")
    types = {name: (dataset.dtype, dataset.shape[1:]) for name, dataset in datasets.items()}

    def read(names: Sequence[str], lengths: Sequence[int]) -> Iterator[dict[str, Array]]:
        with _opened(path) as file:
            stops = np.cumsum(lengths).tolist()
            for length, stop in zip(lengths, stops, strict=True):
                yield {name: file[name][stop - length : stop] for name in names}

    return FlatColumns(str(path), n_rows, types, read)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    h5py = require("h5py", extra="hdf5")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, KeyError) as error:
        if isinstance(error, SharpwaveIOError):
            raise
        raise SharpwaveIOError(f"{path} is damaged: {error}") from error


Origin = str | os.PathLike[str]


def datasets_inside(group: Any, origin: Origin) -> Iterator[tuple[str, Any]]:
    """The datasets below a group by their names, those of groups in it joined by `/`.

    Raises:
        SharpwaveIOError: Something lies in another file, or a group in itself.
    """
    h5py = require("h5py", extra="hdf5")
    waiting = [("", group)]
    seen = {_address(h5py, group)}
    while waiting:
        prefix, parent = waiting.pop()
        inner = []
        for name in parent:
            full = prefix + name
            check_link(parent, name, origin)
            item = parent[name]
            if isinstance(item, h5py.Group):
                address = _address(h5py, item)
                if address in seen:
                    raise SharpwaveIOError(f"{origin}: group {full!r} is linked more than once")
                seen.add(address)
                inner.append((full + "/", item))
            elif isinstance(item, h5py.Dataset):
                _check_storage(item, full, origin)
                yield full, item
        waiting += reversed(inner)


def check_links(group: Any, origin: Origin) -> None:
    """Refuse links of a group that lead out of the file; what they lead to is not opened.

    Raises:
        SharpwaveIOError: One does.
    """
    for name in group:
        check_link(group, name, origin)


def check_link(group: Any, name: str, origin: Origin) -> None:
    """Refuse a link that leads out of the file.

    Raises:
        SharpwaveIOError: It does.
    """
    links = require("h5py", extra="hdf5").h5l
    # By its bytes: a name need not be UTF-8.
    kind = group.id.links.get_info(os.fsencode(name)).type
    if kind not in (links.TYPE_HARD, links.TYPE_SOFT):
        raise SharpwaveIOError(f"{origin}: {name!r} is a link to another file, which is not opened")


def _check_storage(dataset: Any, name: str, origin: Origin) -> None:
    if dataset.is_virtual:
        raise SharpwaveIOError(
            f"{origin}: dataset {name!r} is made of other datasets, which are not opened"
        )
    if dataset.external:
        raise SharpwaveIOError(
            f"{origin}: dataset {name!r} lies in another file, which is not opened"
        )


def _address(h5py: Any, group: Any) -> tuple[int, int]:
    info = h5py.h5o.get_info(group.id)
    return int(info.fileno), int(info.addr)
