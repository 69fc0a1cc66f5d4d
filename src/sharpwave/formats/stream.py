"""Streams of episodes, which every format reads to and writes from."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sharpwave.formats.spec import EpisodeField, EpisodeSchema
from sharpwave.types import Array

FINAL_OBS = "final_obs"
"""The meta field of the observation after an episode's last step."""


class NotCarriedWarning(UserWarning):
    """Something of a dataset has no place in the other format and was left out."""


def warn_not_carried(what: Iterable[str], why: str) -> None:
    """Warn that the named things were left out."""
    names = ", ".join(what)
    if names:
        warnings.warn(f"not carried over: {names} ({why})", NotCarriedWarning, stacklevel=3)


@dataclass(frozen=True)
class Episode:
    """One episode.

    Attributes:
        steps: By field, [T, ...].
        meta: By meta field, one value each.
    """

    steps: Mapping[str, Array]
    meta: Mapping[str, Array]


@dataclass(frozen=True)
class EpisodeStream:
    """Episodes of one schema, of which one at a time is in memory.

    Iterating starts from the first episode each time, and checks every one against the schema.

    Attributes:
        origin: Source of the data, for error messages.
        schema: Their fields.
        lengths: Their lengths, [E] int64.
        episodes: Gives them in order.
    """

    origin: str
    schema: EpisodeSchema
    lengths: npt.NDArray[np.int64]
    episodes: Callable[[], Iterable[Episode]]

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def n_steps(self) -> int:
        """The steps of all episodes together."""
        return int(self.lengths.sum())

    def __iter__(self) -> Iterator[Episode]:
        count = 0
        for count, episode in enumerate(self.episodes(), 1):
            if count > len(self):
                break
            where = f"{self.origin}: episode {count - 1}"
            length = int(self.lengths[count - 1])
            _check(where, "field", self.schema.fields, episode.steps, (length,))
            _check(where, "meta field", self.schema.meta_fields, episode.meta, ())
            yield episode
        if count != len(self):
            raise ValueError(f"{self.origin} must have {len(self)} episodes, got {count}")

    def watched(self, callback: Callable[[int], object]) -> EpisodeStream:
        """The same stream, which calls `callback(steps)` after every episode."""

        def episodes() -> Iterator[Episode]:
            for episode, length in zip(self.episodes(), self.lengths.tolist(), strict=False):
                yield episode
                callback(length)

        return replace(self, episodes=episodes)


def _check(
    where: str,
    kind: str,
    fields: Mapping[str, EpisodeField],
    given: Mapping[str, Array],
    rows: tuple[int, ...],
) -> None:
    if given.keys() != fields.keys():
        raise ValueError(f"{where} must have the {kind}s {list(fields)}, got {list(given)}")
    for name, field in fields.items():
        expected, got = rows + field.shape, given[name].shape
        if got != expected:
            raise ValueError(f"{where}: {kind} {name!r} must have shape {expected}, got {got}")
        if given[name].dtype != np.dtype(field.dtype):
            raise TypeError(
                f"{where}: {kind} {name!r} must be {field.dtype}, got {given[name].dtype}"
            )


def concatenated(streams: list[EpisodeStream]) -> EpisodeStream:
    """The episodes of several streams, one stream after another.

    Raises:
        ValueError: Their fields differ; the message says where.
    """
    first = streams[0]
    for other in streams[1:]:
        differences = differing(first.schema, other.schema)
        if differences:
            raise ValueError(
                f"{other.origin} must have the fields of {first.origin}: {'; '.join(differences)}"
            )

    def episodes() -> Iterator[Episode]:
        for stream in streams:
            yield from stream

    lengths = np.concatenate([stream.lengths for stream in streams])
    origin = " + ".join(stream.origin for stream in streams)
    return EpisodeStream(origin, first.schema, lengths, episodes)


def differing(one: EpisodeSchema, other: EpisodeSchema) -> list[str]:
    """Differences between the dtypes and shapes of two schemas, in words."""
    words = []
    for kind, left, right in (
        ("field", one.fields, other.fields),
        ("meta field", one.meta_fields, other.meta_fields),
    ):
        for name in {**left, **right}:
            a, b = _said(left.get(name)), _said(right.get(name))
            if a != b:
                words.append(f"{kind} {name!r} is {b} instead of {a}")
    return words


def _said(field: EpisodeField | None) -> str:
    return "missing" if field is None else f"{field.dtype} {field.shape}"
