"""Columns with the steps of all episodes one after another, as many formats keep them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import numpy.typing as npt

from sharpwave.formats.spec import EpisodeSchema
from sharpwave.formats.stream import FINAL_OBS, Episode, EpisodeStream
from sharpwave.types import Array

NAMES = {
    "observation": "obs",
    "observations": "obs",
    "actions": "action",
    "rewards": "reward",
    "terminals": "terminated",
    "terminations": "terminated",
    "dones": "terminated",
    "done": "terminated",
    "timeouts": "truncated",
    "truncations": "truncated",
    "next_observations": "next_obs",
    "next_observation": "next_obs",
    "infos": "info",
}
"""Our names for what other libraries call differently."""

SCALARS = ("reward", "terminated", "truncated")
FLAGS = ("terminated", "truncated")
ORDER = ("obs", "action", *SCALARS, "next_obs")


@dataclass(frozen=True)
class FlatColumns:
    """N rows in columns, read in order.

    Attributes:
        origin: Source of the data, for error messages.
        n_rows: N.
        types: dtype and shape of a row, by column.
        read: Given columns and counts, gives so many rows of each column, count after count.
    """

    origin: str
    n_rows: int
    types: Mapping[str, tuple[np.dtype[np.generic], tuple[int, ...]]]
    read: Callable[[Sequence[str], Sequence[int]], Iterator[dict[str, Array]]]

    def whole(self, name: str) -> Array:
        """One column with all its rows: only for small ones."""
        (rows,) = self.read([name], [self.n_rows])
        return rows[name]


def our_name(name: str) -> str:
    """The name that we give to a column: the first part of a dotted name is translated."""
    first, dot, rest = name.replace("/", ".").partition(".")
    return NAMES.get(first, first) + dot + rest


def described_stream(
    steps: FlatColumns,
    meta: FlatColumns,
    schema: EpisodeSchema,
    names: Callable[[str], str],
    meta_names: Callable[[str], str],
    lengths: npt.NDArray[np.int64],
    repair: Callable[[int, dict[str, Array]], None] | None = None,
) -> EpisodeStream:
    """The episodes in columns that we wrote.

    Args:
        steps: One row per step.
        meta: One row per episode.
        schema: Their fields.
        names: Gives the column of a field.
        meta_names: Gives the column of a meta field.
        lengths: Lengths of the episodes.
        repair: Given the number of an episode and its steps, puts right what the format changed.

    Raises:
        ValueError: Columns and description contradict each other.
    """
    step_columns = {name: names(name) for name in schema.fields}
    meta_columns = {name: meta_names(name) for name in schema.meta_fields}
    _check_columns(steps, step_columns)
    _check_columns(meta, meta_columns)
    _check_lengths(steps, lengths)
    if meta_columns and meta.n_rows != len(lengths):
        raise ValueError(f"{meta.origin} must have {len(lengths)} episodes, got {meta.n_rows}")

    def episodes() -> Iterator[Episode]:
        batches = steps.read(list(step_columns.values()), lengths.tolist())
        ones = [1] * len(lengths)
        values = meta.read(list(meta_columns.values()), ones) if meta_columns else repeat({})
        for number, (rows, row) in enumerate(zip(batches, values, strict=False)):
            given = {name: rows[column] for name, column in step_columns.items()}
            if repair is not None:
                repair(number, given)
            yield Episode(given, {name: row[column][0] for name, column in meta_columns.items()})

    return EpisodeStream(steps.origin, schema, lengths, episodes)


def foreign_stream(
    columns: FlatColumns,
    *,
    lengths: npt.NDArray[np.int64] | None = None,
    keep_next_obs: bool = False,
    names: Mapping[str, str] | None = None,
    meta: Mapping[str, Array] | None = None,
) -> EpisodeStream:
    """The episodes in columns of another library.

    Names become ours (see `NAMES`), rewards and flags of shape [N, 1] lose the 1, flags are bool.
    An episode ends where a flag is set, and at the end of the data. Of `next_obs` only the last of
    an episode is kept, as meta field `final_obs`, since the others are the following observations.

    Args:
        columns: The steps.
        lengths: Lengths of the episodes, where they are known.
        keep_next_obs: Keep `next_obs` as an ordinary field.
        names: Our name of each column, where it is not told by `NAMES`.
        meta: Further meta fields, [E, ...].

    Raises:
        ValueError: Two columns have one name, `next_obs` is not the following `obs`, or rows are
            missing.
    """
    sources = _our_sources(columns, names or {name: our_name(name) for name in columns.types})
    meta = meta or {}
    types = {name: _our_type(name, *columns.types[source]) for name, source in sources.items()}
    if lengths is None:
        lengths = _lengths_by_flags(
            columns, {name: sources[name] for name in FLAGS if name in sources}
        )
    _check_lengths(columns, lengths)
    successors = {} if keep_next_obs else _successors(types)
    fields = {name: of for name, of in types.items() if name not in successors}
    meta_fields = {_final(name): types[name] for name in successors}
    meta_fields |= {name: (rows.dtype.name, rows.shape[1:]) for name, rows in meta.items()}

    def episodes() -> Iterator[Episode]:
        batches = columns.read(list(sources.values()), lengths.tolist())
        for number, rows in enumerate(batches):
            steps = {
                name: rows[source].reshape(-1, *types[name][1]).astype(types[name][0], copy=False)
                for name, source in sources.items()
            }
            following = {name: steps.pop(name) for name in successors}
            for name, obs in successors.items():
                where = f"{columns.origin}: episode {number}"
                _check_successors(where, following[name], steps[obs])
            own = {_final(name): values[-1] for name, values in following.items()}
            given = {name: values[number] for name, values in meta.items()}
            yield Episode(steps, own | given)

    return EpisodeStream(columns.origin, EpisodeSchema(fields, meta_fields), lengths, episodes)


def _final(name: str) -> str:
    return FINAL_OBS + name[len("next_obs") :]


def _our_sources(columns: FlatColumns, names: Mapping[str, str]) -> dict[str, str]:
    sources: dict[str, str] = {}
    for source in columns.types:
        name = names[source]
        if name in sources:
            raise ValueError(
                f"{columns.origin}: columns {sources[name]!r} and {source!r} would both be {name!r}"
            )
        sources[name] = source
    if not sources:
        raise ValueError(f"{columns.origin} has no columns of steps")
    known = [name for role in ORDER for name in sources if name.partition(".")[0] == role]
    return {name: sources[name] for name in [*known, *(n for n in sources if n not in known)]}


def _our_type(
    name: str, dtype: np.dtype[np.generic], shape: tuple[int, ...]
) -> tuple[str, tuple[int, ...]]:
    if name in SCALARS and shape == (1,):
        shape = ()
    return "bool" if name in FLAGS else dtype.name, shape


def _successors(types: Mapping[str, object]) -> dict[str, str]:
    """The parts of next_obs with the parts of obs that they follow."""
    found = {}
    for name in types:
        if name.partition(".")[0] == "next_obs":
            obs = "obs" + name[len("next_obs") :]
            if types.get(obs) == types[name]:
                found[name] = obs
    return found


def _check_successors(where: str, next_obs: Array, obs: Array) -> None:
    if next_obs[:-1].tobytes() != obs[1:].tobytes():
        raise ValueError(
            f"{where}: next_obs must be the obs of the following step "
            f"(keep_next_obs=True keeps it as a field of its own)"
        )


def _lengths_by_flags(columns: FlatColumns, flags: Mapping[str, str]) -> npt.NDArray[np.int64]:
    if not flags:
        raise ValueError(
            f"{columns.origin} does not say where episodes end: it must have one of the columns "
            f"terminals, timeouts, terminated, truncated or dones, got {list(columns.types)}"
        )
    ends = np.zeros(columns.n_rows, np.bool_)
    for source in flags.values():
        if columns.types[source][1] not in ((), (1,)):
            raise ValueError(
                f"{columns.origin}: {source!r} must have one value per step, "
                f"got the shape {columns.types[source][1]}"
            )
        ends |= columns.whole(source).reshape(columns.n_rows).astype(np.bool_)
    if columns.n_rows:
        ends[-1] = True
    return np.diff(np.flatnonzero(ends), prepend=-1).astype(np.int64)


def _check_columns(columns: FlatColumns, expected: Mapping[str, str]) -> None:
    missing = [column for column in expected.values() if column not in columns.types]
    if missing:
        raise ValueError(f"{columns.origin} has no column {', '.join(map(repr, missing))}")


def _check_lengths(columns: FlatColumns, lengths: npt.NDArray[np.int64]) -> None:
    if (lengths < 1).any():
        raise ValueError(
            f"{columns.origin}: episodes must have at least one step, got {lengths.min()}"
        )
    if lengths.sum() != columns.n_rows:
        raise ValueError(
            f"{columns.origin}: the episodes have {lengths.sum()} steps, "
            f"the columns {columns.n_rows}"
        )
