"""Loaders of arbitrary episodes yield what plain loops over them do."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sharpwave import EpisodeBuffer, _native
from sharpwave.episodes.union import EpisodeUnion
from tests.examples import examples
from tests.reference.episodes import (
    ListedEpisodes,
    ListedField,
    Values,
    assert_equal,
    batches,
    flat,
    n_step_transitions,
    passing,
    timesteps,
    trajectories,
    windows,
)
from tests.unit.episodes.listed import FIELDS, META, values

Lengths = st.lists(st.integers(1, 9), min_size=1, max_size=8)
Tasks = st.sets(st.integers(0, 3))


def buffer_of(lengths: list[int], parts: int) -> tuple[Any, ListedEpisodes]:
    """The episodes in several buffers read as one, and in a single one."""
    whole = ListedEpisodes(FIELDS, META)
    pieces = [ListedEpisodes(FIELDS, META) for _ in range(parts)]
    for number, length in enumerate(lengths):
        episode = values(number, length, number % 3)
        whole.store_episode(**episode)
        pieces[number * parts // len(lengths)].store_episode(**episode)
    return (whole if parts == 1 else EpisodeUnion(pieces)), whole


@given(
    lengths=Lengths,
    parts=st.integers(1, 3),
    level=st.sampled_from(["trajectory", "timestep", "n-step", "window"]),
    n=st.integers(1, 12),
    stride=st.integers(1, 12),
    batch_size=st.integers(1, 7),
    tasks=Tasks,
    rewards=Tasks,
    shuffle=st.booleans(),
    seed=st.integers(0, 2**64 - 1),
)
@settings(max_examples=examples(150), deadline=None)
def test_loaders_yield_what_plain_loops_do(
    lengths: list[int],
    parts: int,
    level: str,
    n: int,
    stride: int,
    batch_size: int,
    tasks: set[int],
    rewards: set[int],
    shuffle: bool,
    seed: int,
) -> None:
    reader, whole = buffer_of(lengths, parts)
    chosen = passing(whole.held, lambda episode: int(episode.meta["task"]) in tasks)
    options: dict[str, Any] = {"filter_meta": {"task": tasks}, "return_indices": True}
    spans: list[str] = []
    items: list[Values]
    if level == "trajectory":
        items = list(trajectories(chosen))
        options |= {"return_mask": True}
        spans = [*FIELDS, "_mask"]
    elif level == "timestep":
        items = list(timesteps(chosen, lambda step: step["reward"] in rewards))
        options |= {"timestep_level": True, "filter_fields": {"reward": rewards}}
    elif level == "n-step":
        items = list(n_step_transitions(chosen, n, lambda step: step["reward"] in rewards))
        options |= {
            "n_steps": n,
            "sequence_fields": [*FIELDS],
            "filter_fields": {"reward": rewards},
        }
    else:
        items = list(windows(chosen, n, stride))
        options |= {"window_length": n, "windows": "all", "stride": stride, "return_mask": True}
    loader = reader.dataloader(batch_size, shuffle=shuffle, seed=seed, **options)
    if not shuffle:
        for got, want in zip(loader, batches(items, batch_size, spans), strict=True):
            assert_equal(got, want)
        return
    place = "_indices" if level in ("timestep", "n-step") else "_index"
    seen = []
    for got in loader:
        found = flat(got)
        where = found[place].reshape(len(found[place]), -1)
        if level == "window":
            where = np.column_stack((where, found["_start"]))
        seen += [tuple(row) for row in where.tolist()]
        numbers = [_number(items, row, place) for row in where.tolist()]
        assert_equal(got, batches([items[i] for i in numbers], batch_size, spans)[0])
    assert len(set(seen)) == len(seen) == len(items)


def _number(items: list[Values], where: list[int], place: str) -> int:
    """The number of the item that lies there."""
    for i, item in enumerate(items):
        mine = np.atleast_1d(item[place]).tolist()
        if [*mine, *([int(item["_start"])] if "_start" in item else [])] == where:
            return i
    raise AssertionError(f"no item at {where}")


@given(
    moves=st.lists(st.one_of(st.integers(1, 12), st.just(0)), max_size=40),
    room=st.integers(1, 4),
    batch_size=st.integers(1, 9),
    n_steps=st.one_of(st.none(), st.integers(1, 5)),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
)
@settings(max_examples=examples(40), deadline=None)
def test_loaders_beside_a_writer_that_overwrites_yield_what_those_of_a_list_do(
    moves: list[int],
    room: int,
    batch_size: int,
    n_steps: int | None,
    shuffle: bool,
    drop_last: bool,
) -> None:
    options: Any = {"n_steps": n_steps} if n_steps else {"timestep_level": True}
    options |= {"shuffle": shuffle, "drop_last": drop_last, "return_indices": True}
    fields = {"place": ListedField("int32", (2,))}
    plain = ListedEpisodes(fields, room=room)

    def store(length: int) -> None:
        place = [(plain.ids, t) for t in range(length)]
        plain.store_episode(place=place)
        disk.store_episode(place=np.array(place, np.int32))

    with (
        tempfile.TemporaryDirectory() as folder,
        EpisodeBuffer(folder, room, 20, {"place": ("int", 2)}, circular=True) as disk,
    ):
        store(5)
        loaders = (plain.dataloader(batch_size, **options), disk.dataloader(batch_size, **options))
        running = [iter(loader) for loader in loaders]
        for length in moves:  # 0 stands for a batch
            if length > 0:
                store(length)
                continue
            want, got = (next(batches, None) for batches in running)
            if want is None or got is None:
                assert want is got
                loaders = (
                    plain.dataloader(batch_size, **options),
                    disk.dataloader(batch_size, **options),
                )
                running = [iter(loader) for loader in loaders]
            else:
                assert_equal(got, flat(want))


@given(
    counts=st.lists(st.one_of(st.integers(0, 3), st.integers(0, 500)), max_size=40),
    kept=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
@settings(deadline=None)
def test_anchors_are_where_a_list_has_them(counts: list[int], kept: float, seed: int) -> None:
    starts = [1000 * e for e in range(len(counts))]
    want = [(e, i, 1000 * e + i) for e, count in enumerate(counts) for i in range(count)]
    chosen = np.flatnonzero(np.random.default_rng(seed).random(len(want)) < kept)

    def listed(places: Any) -> list[tuple[int, ...]]:
        return [tuple(place) for place in np.column_stack(places).tolist()]

    for anchors, places in (
        (_native.Anchors(counts, starts), want),
        (_native.Anchors(counts, starts, chosen=chosen), [want[i] for i in chosen]),
    ):
        assert len(anchors) == len(places)
        assert listed(anchors.span(0, len(anchors))) == places
        assert listed(anchors.find(np.arange(len(anchors))[::-1])) == places[::-1]
        assert sorted(listed(anchors.span(0, len(anchors), seed))) == places
