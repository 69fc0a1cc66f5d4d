"""Episodes in plain lists: a buffer to read, and loops that say what its loaders must yield."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from sharpwave.episodes.loaders import LoadsEpisodes
from sharpwave.types import Array

Values = dict[str, Any]


@dataclass(frozen=True)
class ListedField:
    """dtype and shape of a field."""

    dtype: str
    shape: tuple[int, ...] = ()


@dataclass
class Episode:
    """One episode: steps [T, ...] and values of the whole, by dotted name."""

    id: int
    start: int
    steps: Values
    meta: Values
    aborted: bool = False

    @property
    def length(self) -> int:
        return len(next(iter(self.steps.values())))


@dataclass
class ListedEpisodes(LoadsEpisodes):
    """A buffer of episodes that is a list; the oldest leave when there are more than `room`."""

    fields: dict[str, ListedField]
    meta_fields: dict[str, ListedField] = field(default_factory=dict)
    room: int | None = None
    held: list[Episode] = field(default_factory=list)
    rows: int = 0
    ids: int = 0

    @property
    def schema(self) -> SimpleNamespace:
        return SimpleNamespace(fields=self.fields, meta_fields=self.meta_fields)

    def store_episode(self, aborted: bool = False, **values: Any) -> None:
        steps = {name: np.asarray(values[name], spec.dtype) for name, spec in self.fields.items()}
        meta = {
            name: np.asarray(values[name], spec.dtype) for name, spec in self.meta_fields.items()
        }
        episode = Episode(self.ids, self.rows, steps, meta, aborted)
        self.held.append(episode)
        self.rows += episode.length
        self.ids += 1
        if self.room is not None and len(self.held) > self.room:
            self.held.pop(0)

    def episodes(self, aborted: bool = False) -> SimpleNamespace:
        held = [episode for episode in self.held if aborted or not episode.aborted]
        return SimpleNamespace(
            ids=np.array([episode.id for episode in held], np.int64),
            starts=np.array([episode.start for episode in held], np.int64),
            lengths=np.array([episode.length for episode in held], np.int64),
            flags=np.array([1 + episode.aborted for episode in held], np.uint8),
            meta={
                name: np.array([episode.meta[name] for episode in held], spec.dtype).reshape(
                    -1, *spec.shape
                )
                for name, spec in self.meta_fields.items()
            },
        )

    def gather(
        self, rows: Array, fields: Sequence[str] | None = None, out: Values | None = None
    ) -> Values:
        assert out is None
        found = {}
        for name in self.fields if fields is None else fields:
            spec = self.fields[name]
            values = [self._value(int(row), name) for row in rows.ravel()]
            found[name] = np.array(values, spec.dtype).reshape(*rows.shape, *spec.shape)
        return found

    def gather_ranges(
        self,
        starts: Array,
        lengths: Array,
        width: int,
        fields: Sequence[str] | None = None,
        out: Values | None = None,
    ) -> Values:
        rows = np.full((len(starts), width), -1)
        for i, (start, length) in enumerate(zip(starts, lengths, strict=True)):
            rows[i, :length] = np.arange(start, start + length)
        return self.gather(rows, fields, out)

    def refresh(self) -> None:
        """Nothing is cached."""

    def _value(self, row: int, name: str) -> Array:
        if row == -1:
            return np.zeros(self.fields[name].shape, self.fields[name].dtype)
        for episode in self.held:
            if episode.start <= row < episode.start + episode.length:
                value: Array = episode.steps[name][row - episode.start]
                return value
        raise IndexError(f"row {row} is gone")


def passing(
    episodes: Sequence[Episode], condition: Callable[[Episode], bool] = lambda _: True
) -> Iterator[tuple[int, Episode]]:
    """Complete episodes that meet a condition, with their places among the complete ones."""
    complete = [episode for episode in episodes if not episode.aborted]
    for index, episode in enumerate(complete):
        if condition(episode):
            yield index, episode


def trajectories(chosen: Iterator[tuple[int, Episode]]) -> Iterator[Values]:
    """Whole episodes."""
    for index, episode in chosen:
        yield {
            **episode.steps,
            **episode.meta,
            "_lens": np.int64(episode.length),
            "_mask": np.ones(episode.length, bool),
            "_index": np.int64(index),
        }


def timesteps(
    chosen: Iterator[tuple[int, Episode]],
    condition: Callable[[Values], bool] = lambda _: True,
) -> Iterator[Values]:
    """Steps that meet a condition."""
    for index, episode in chosen:
        for t in range(episode.length):
            step = {name: values[t] for name, values in episode.steps.items()}
            if condition(step):
                yield {**step, **episode.meta, "_indices": np.array([index, t])}


def n_step_transitions(
    chosen: Iterator[tuple[int, Episode]],
    n: int,
    condition: Callable[[Values], bool] = lambda _: True,
) -> Iterator[Values]:
    """From every step but the last to one up to n steps later."""
    for index, episode in chosen:
        for t in range(episode.length - 1):
            k = min(n, episode.length - t - 1)
            item = {name: values[t] for name, values in episode.steps.items()}
            if not condition(item):
                continue
            for name, values in episode.steps.items():
                item[f"next_{name}"] = values[t + k]
                item[f"seq_{name}"] = padded(values[t : t + k], n)
            item |= {**episode.meta, "n_step_lens": np.int64(k), "_indices": np.array([index, t])}
            yield item


def windows(chosen: Iterator[tuple[int, Episode]], length: int, stride: int) -> Iterator[Values]:
    """Windows from every multiple of the stride on, until one reaches the end."""
    for index, episode in chosen:
        for start in range(0, episode.length, stride):
            yield window(index, episode, start, length)
            if start + length >= episode.length:
                break


def window(index: int, episode: Episode, start: int, length: int) -> Values:
    """One window."""
    steps = {name: values[start : start + length] for name, values in episode.steps.items()}
    n = min(length, episode.length - start)
    return {
        **{name: padded(values, length) for name, values in steps.items()},
        **episode.meta,
        "_lens": np.int64(n),
        "_mask": np.arange(length) < n,
        "_reaches_episode_end": np.bool_(start + n == episode.length),
        "_index": np.int64(index),
        "_start": np.int64(start),
    }


def padded(values: Array, length: int) -> Array:
    """The values, followed by zeros."""
    whole = np.zeros((length, *values.shape[1:]), values.dtype)
    whole[: len(values)] = values
    return whole


def batches(items: Sequence[Values], size: int, spans: Sequence[str] = ()) -> list[Values]:
    """Items stacked, those named in `spans` padded to the longest of a batch."""
    stacked = []
    for begin in range(0, len(items), size):
        group = items[begin : begin + size]
        longest = {name: max(len(item[name]) for item in group) for name in spans}
        stacked.append(
            {
                name: np.stack(
                    [
                        padded(item[name], longest[name]) if name in longest else item[name]
                        for item in group
                    ]
                )
                for name in group[0]
            }
        )
    return stacked


def flat(batch: Mapping[str, Any], path: str = "") -> Values:
    """A nested batch with dotted names, tensors as arrays."""
    found: Values = {}
    for key, value in batch.items():
        if isinstance(value, dict):
            found |= flat(value, f"{path}{key}.")
        else:
            found[path + key] = np.asarray(value)
    return found


def assert_equal(got: Mapping[str, Any], want: Mapping[str, Any]) -> None:
    """The same names, dtypes, shapes and values."""
    arrays = flat(got)
    assert arrays.keys() == want.keys()
    for name, value in want.items():
        expected = np.asarray(value)
        assert arrays[name].dtype == expected.dtype, name
        np.testing.assert_array_equal(arrays[name], expected, err_msg=name)
