"""NumPy's .npz: one array per field with the steps of all episodes one after another.

`numpy.load` reads them: `data["obs"]` [N, ...], `data["episodes/lengths"]` [E],
`data["meta/task"]` [E, ...]. Everything is carried. Files of others are read by the names of their
arrays (see `flat.NAMES`) and cut into episodes where a flag is set.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.lib.format as npy

from sharpwave.errors import SharpwaveIOError
from sharpwave.formats.flat_columns import FlatColumns, described_stream, foreign_stream
from sharpwave.formats.spec import describe, described
from sharpwave.formats.stream import EpisodeStream
from sharpwave.formats.target import existing_file, new_target, starts_with
from sharpwave.types import Array

SUFFIXES = (".npz",)
LENGTHS = "episodes/lengths"
SCHEMA = "episodes/schema"
META = "meta/"


def detect(path: Path) -> bool:
    """Return whether this is a zip file with arrays."""
    return starts_with(path, b"PK\x03\x04", b"PK\x05\x06") and zipfile.is_zipfile(path)


def read(path: str | os.PathLike[str], *, keep_next_obs: bool = False) -> EpisodeStream:
    """The episodes of an .npz file.

    Args:
        path: The file.
        keep_next_obs: In a file of another library, keep `next_obs` as an ordinary field instead
            of its last one as `final_obs`.

    Raises:
        SharpwaveIOError: It is no such file, or damaged.
        ValueError: It does not say where episodes end, or contradicts itself.
    """
    path = existing_file(path, "an .npz file", detect)
    types = {name: _type(path, name) for name in _names(path)}
    if SCHEMA in types:
        schema = described(str(path), _small(path, SCHEMA).item())
        lengths = _small(path, LENGTHS).astype(np.int64)
        steps = _columns(path, {name: types[name] for name in schema.fields if name in types})
        kept = [META + name for name in schema.meta_fields]
        meta = _columns(path, {name: types[name] for name in kept if name in types})
        return described_stream(steps, meta, schema, str, lambda name: META + name, lengths)
    return foreign_stream(_columns(path, types), keep_next_obs=keep_next_obs)


def write(
    stream: EpisodeStream,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    compress: bool = False,
) -> None:
    """Write an .npz file.

    Args:
        stream: The episodes; they are gone through once for every field.
        path: The file.
        overwrite: Replace an .npz file that is there.
        compress: Deflate the arrays.
    """
    for name in stream.schema.fields:
        if name.startswith((META, "episodes/")):
            raise ValueError(f"field {name!r} cannot be stored in .npz: the name is taken")
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    # A zip file takes one array at a time, and an episode has rows of them all.
    with (
        new_target(path, overwrite=overwrite, is_ours=detect) as made,
        tempfile.TemporaryDirectory(dir=made.parent, prefix=made.name) as spool,
        zipfile.ZipFile(made, "x", method) as archive,
    ):
        for number, name in enumerate(_spool(stream, Path(spool))):
            with (
                (Path(spool) / str(number)).open("rb") as column,
                archive.open(f"{name}.npy", "w", force_zip64=True) as member,
            ):
                shutil.copyfileobj(column, member, 1 << 20)


def _spool(stream: EpisodeStream, folder: Path) -> list[str]:
    """Write every array to a file of its own, called by its number; their names."""
    schema, n_episodes = stream.schema, len(stream)
    arrays = {SCHEMA: np.array(describe(schema)), LENGTHS: stream.lengths}
    columns = {name: (field, stream.n_steps) for name, field in schema.fields.items()}
    columns |= {META + name: (field, n_episodes) for name, field in schema.meta_fields.items()}
    names = [*arrays, *columns]
    with contextlib.ExitStack() as stack:
        files = {
            name: stack.enter_context((folder / str(number)).open("wb"))
            for number, name in enumerate(names)
        }
        for name, array in arrays.items():
            npy.write_array(files[name], array, allow_pickle=False)
        for name, (field, rows) in columns.items():
            dtype = npy.dtype_to_descr(np.dtype(field.dtype))
            header = {"descr": dtype, "fortran_order": False, "shape": (rows, *field.shape)}
            npy.write_array_header_1_0(files[name], header)
        for episode in stream:
            for name, values in episode.steps.items():
                files[name].write(np.ascontiguousarray(values).data)
            for name, value in episode.meta.items():
                files[META + name].write(np.ascontiguousarray(value).data)
    return names


def _names(path: Path) -> list[str]:
    with _archive(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def _columns(
    path: Path, types: dict[str, tuple[np.dtype[Any], tuple[int, ...], bool]]
) -> FlatColumns:
    """The arrays as columns; all must have as many rows."""
    counts = {name: shape[0] if shape else None for name, (_, shape, _) in types.items()}
    n_rows = next(iter(counts.values()), 0)
    for name, count in counts.items():
        if count != n_rows or count is None:
            raise ValueError(
                f"{path}: array {name!r} must have {n_rows} rows like {next(iter(counts))!r}, "
                f"got shape {types[name][1]}"
            )
        if types[name][0].kind not in "biuf":
            raise ValueError(f"{path}: array {name!r} must hold numbers, got {types[name][0]}")
    whole = {name for name, (_, _, fortran) in types.items() if fortran}

    def read(names: Sequence[str], lengths: Sequence[int]) -> Iterator[dict[str, Array]]:
        with _archive(path) as archive, contextlib.ExitStack() as stack:
            # The rows of an array in Fortran's order lie scattered: it is read at once.
            taken = {name: iter(_rows_of(_small(path, name), lengths)) for name in whole & {*names}}
            for name in names:
                if name not in taken:
                    member = stack.enter_context(archive.open(f"{name}.npy"))
                    taken[name] = _rows(path, name, member, lengths)
            for _ in lengths:
                yield {name: next(taken[name]) for name in names}

    rows = {name: (dtype, shape[1:]) for name, (dtype, shape, _) in types.items()}
    return FlatColumns(str(path), n_rows or 0, rows, read)


def _rows(path: Path, name: str, member: IO[bytes], lengths: Sequence[int]) -> Iterator[Array]:
    shape, _, dtype = _header(path, name, member)
    row = math.prod(shape[1:]) * dtype.itemsize
    for length in lengths:
        with _reading(path):
            content = member.read(length * row)
        if len(content) != length * row:
            raise SharpwaveIOError(f"{path}: array {name!r} is cut short")
        yield np.frombuffer(content, dtype).reshape(length, *shape[1:])


def _rows_of(array: Array, lengths: Sequence[int]) -> list[Array]:
    return np.split(np.ascontiguousarray(array), np.cumsum(lengths)[:-1])


def _type(path: Path, name: str) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    with _archive(path) as archive, archive.open(f"{name}.npy") as member:
        shape, fortran, dtype = _header(path, name, member)
    return dtype, shape, fortran


def _header(
    path: Path, name: str, member: IO[bytes]
) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = npy.read_magic(member)
        reader = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        return reader(member)
    except ValueError as error:
        raise SharpwaveIOError(f"{path}: array {name!r} cannot be read: {error}") from error


def _small(path: Path, name: str) -> Array:
    with _archive(path) as archive:
        if f"{name}.npy" not in archive.namelist():
            raise ValueError(f"{path} has no array {name!r}")
        with archive.open(f"{name}.npy") as member, _reading(path):
            array: Array = npy.read_array(member, allow_pickle=False)
            return array


@contextlib.contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    with _reading(path):
        archive = zipfile.ZipFile(path)
    with archive:
        yield archive


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
        raise SharpwaveIOError(f"{path} is damaged: {error}") from error
