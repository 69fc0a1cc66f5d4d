"""Loaders over buffers on disk yield what they do over lists of the same episodes."""

from __future__ import annotations

import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import pytest

from sharpwave.episodes import EpisodeBuffer, EpisodeUnion
from tests.reference.episodes import ListedEpisodes, assert_equal, flat
from tests.unit.episodes.listed import FIELDS, META, listed, values

LENGTHS = (40, 1, 7, 200, 5, 3, 64)

LEVELS: list[dict[str, Any]] = [
    {"return_mask": True},
    {"timestep_level": True},
    {"timestep_level": True, "filter_fields": {"reward": [0, 1], "done": False}},
    {"n_steps": 3, "sequence_fields": list(FIELDS)},
    {"n_steps": 4, "filter_meta": {"task": [0, 2]}},
    {"window_length": 9, "return_mask": True},
    {"window_length": 9, "windows": "all", "stride": 4},
]


def on_disk(folder: Path, **options: Any) -> EpisodeBuffer:
    """An empty buffer with the fields of listed ones."""
    fields = {name: (field.dtype, field.shape) for name, field in FIELDS.items()}
    meta = {name: (field.dtype, field.shape) for name, field in META.items()}
    return EpisodeBuffer(folder, 50, 500, fields, meta, **options)


def store(buffer: EpisodeBuffer, number: int, length: int) -> None:
    given = values(number, length, number % 3)
    with buffer.one_episode(**{name: given[name] for name in META}):
        for t in range(length):
            obs = {name: given[f"obs.{name}"][t] for name in ("image", "speed")}
            rest = {name: given[name][t] for name in ("action", "reward", "done")}
            buffer.store(obs=obs, **rest)


def filled(folder: Path, lengths: tuple[int, ...] = LENGTHS, **options: Any) -> EpisodeBuffer:
    buffer = on_disk(folder, **options)
    for number, length in enumerate(lengths):
        store(buffer, number, length)
    return buffer


@pytest.mark.long(but=["False-options0"])
@pytest.mark.parametrize("options", LEVELS)
@pytest.mark.parametrize("shuffle", [False, True])
def test_every_level_reads_the_same_from_disk(
    tmp_path: Path, options: dict[str, Any], shuffle: bool
) -> None:
    options = {**options, "return_indices": True, "shuffle": shuffle}
    with filled(tmp_path / "episodes") as buffer:
        want = listed(LENGTHS).dataloader(6, **options)
        for batch, expected in zip(buffer.dataloader(6, **options), want, strict=True):
            assert_equal(batch, flat(expected))


def test_a_reader_beside_the_writer_takes_what_is_there_now(tmp_path: Path) -> None:
    writer = filled(tmp_path, (3, 4))
    reader = EpisodeBuffer.from_folder(tmp_path, read_only=True)
    dataset = reader.dataset(timestep_level=True)
    store(writer, 2, 5)
    assert len(dataset) == 7
    assert len(reader.dataset(timestep_level=True)) == 12
    assert len(dataset.batch(range(7))["reward"]) == 7


def test_overwritten_episodes_are_never_mixed_with_new_ones(tmp_path: Path) -> None:
    lengths = (5, 6, 7)
    fields = {"action": ("int", 2)}
    buffer = EpisodeBuffer(tmp_path, 3, 10, fields, circular=True)

    def put(number: int, length: int) -> None:
        with buffer.one_episode():
            for t in range(length):
                buffer.store(action=(number, t))

    for number, length in enumerate(lengths):
        put(number, length)
    loader = iter(buffer.dataloader(4, timestep_level=True))
    first = next(loader)
    assert first["action"].tolist() == [[0, 0], [0, 1], [0, 2], [0, 3]]
    put(3, 9)
    put(4, 9)
    rest = [step for batch in loader for step in batch["action"].tolist()]
    assert rest == [[2, t] for t in range(7)]


@pytest.mark.parametrize("options", LEVELS[1:])
def test_datasets_open_their_folder_anew_where_they_are_unpickled(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    buffer = filled(tmp_path)
    dataset = buffer.dataset(**options, seed=5)
    again = pickle.loads(pickle.dumps(dataset))
    want = buffer.dataloader(5, dataset=dataset, shuffle=True)
    for batch, expected in zip(
        buffer.dataloader(5, dataset=again, shuffle=True), want, strict=True
    ):
        assert_equal(batch, flat(expected))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_read_from_disk(tmp_path: Path, method: str) -> None:
    buffer = filled(tmp_path)
    options: dict[str, Any] = {"n_steps": 3, "shuffle": True}
    loader = buffer.dataloader(
        64, num_workers=1, multiprocessing_context=multiprocessing.get_context(method), **options
    )
    for batch, expected in zip(loader, buffer.dataloader(64, **options), strict=True):
        assert_equal(batch, flat(expected))
    store(buffer, 9, 3)  # the buffer of this process is untouched by its workers
    assert buffer.num_episodes == len(LENGTHS) + 1


@pytest.mark.long
def test_folders_are_read_as_one(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b", "c")]
    parts = (LENGTHS[:3], (), LENGTHS[3:])
    number = 0
    for folder, lengths in zip(folders, parts, strict=True):
        with on_disk(folder) as buffer:
            for length in lengths:
                store(buffer, number, length)
                number += 1
    whole: ListedEpisodes = listed(LENGTHS)
    with EpisodeUnion(folders) as union:
        assert union.num_episodes == len(LENGTHS)
        for options in LEVELS:
            options = {**options, "return_indices": True, "shuffle": True}
            want = whole.dataloader(6, **options)
            for batch, expected in zip(union.dataloader(6, **options), want, strict=True):
                assert_equal(batch, flat(expected))
        again = pickle.loads(pickle.dumps(union))
        assert len(again.dataset(timestep_level=True)) == sum(LENGTHS)


def test_a_closed_buffer_says_so(tmp_path: Path) -> None:
    buffer = filled(tmp_path, (3,))
    loader = buffer.dataloader(2, timestep_level=True)
    buffer.close()
    with pytest.raises(RuntimeError, match="closed"):
        list(loader)
