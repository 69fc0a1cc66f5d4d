"""Storing steps and episodes, and reading them back."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest

from sharpwave import EpisodeBuffer
from tests.unit.episodes.episodes import make, store


def test_episodes_come_back_as_they_were_stored(tmp_path: Path) -> None:
    buffer = make(tmp_path, meta_fields={"task": "int", "score": ("float", (2,), 0.5)})
    for number, length in enumerate([3, 1, 7]):
        with buffer.one_episode(task=number) as final:
            store(buffer, length, number)
            if number == 2:
                final["score"] = [1, 2]
    table = buffer.episodes()
    assert table.ids.tolist() == [0, 1, 2]
    assert table.starts.tolist() == [0, 3, 4]
    assert table.lengths.tolist() == [3, 1, 7]
    assert table.meta["task"].tolist() == [0, 1, 2]
    assert table.meta["score"].tolist() == [[0.5, 0.5], [0.5, 0.5], [1, 2]]
    ranges = buffer.gather_ranges(table.starts, table.lengths, 7)
    assert ranges["state"].shape == (3, 7, 3)
    assert ranges["reward"].tolist() == [
        [0, 1, 2, 0, 0, 0, 0],
        [0] * 7,
        [0, 1, 2, 3, 4, 5, 6],
    ]
    rows = buffer.gather(np.array([[4, 10], [-1, 0]]), fields=["action"])
    assert rows["action"].tolist() == [[[0, 2], [6, 2]], [[0, 0], [0, 0]]]


def test_reopening_gives_the_same_episodes_and_goes_on(tmp_path: Path) -> None:
    with make(tmp_path) as buffer, buffer.one_episode():
        store(buffer, 4)
    with make(tmp_path) as buffer:
        assert buffer.num_episodes == 1
        with buffer.one_episode():
            store(buffer, 2, 1)
    reader = EpisodeBuffer.from_folder(tmp_path / "episodes", read_only=True)
    assert reader.episodes().lengths.tolist() == [4, 2]
    assert reader.gather([4])["state"].tolist() == [[1, 0, 0]]


def test_a_reader_sees_what_the_writer_stores_beside_it(tmp_path: Path) -> None:
    buffer = make(tmp_path)
    reader = EpisodeBuffer.from_folder(tmp_path / "episodes", read_only=True)
    assert len(reader) == 0
    for number in range(3):
        buffer.store_episode(state=np.full((5, 3), number), action=np.ones((5, 2)))
        assert len(reader) == number + 1
        assert reader.gather([5 * number])["state"].tolist() == [[number] * 3]


def test_missing_fields_take_their_default_and_numbers_fill_shapes(tmp_path: Path) -> None:
    fields = {"a": ("float", (2, 2), 7.0), "b": ("uint8", 3), "c": "int64"}
    buffer = make(tmp_path, fields=fields)
    memory = buffer.store(b=9)
    assert memory.b == 9
    assert memory.c == 0
    assert memory.a.tolist() == [[7, 7], [7, 7]]
    buffer.advance_episode()
    steps = buffer.gather([0])
    assert steps["a"].tolist() == [[[7, 7], [7, 7]]]
    assert steps["b"].tolist() == [[9, 9, 9]]
    assert steps["c"].tolist() == [0]


def test_nested_fields_have_dotted_names(tmp_path: Path) -> None:
    buffer = make(tmp_path, fields={"obs": {"image": ("uint8", (2,)), "speed": "float"}})
    buffer.store(obs={"image": [1, 2], "speed": 3.0})
    buffer.store(**{"obs.image": [4, 5], "obs.speed": 6.0})
    with pytest.raises(ValueError, match="speed"):
        buffer.store(obs={"image": [1, 2]})
    buffer.advance_episode()
    assert buffer.gather([0, 1])["obs.image"].tolist() == [[1, 2], [4, 5]]


def test_an_exception_leaves_an_aborted_episode(tmp_path: Path) -> None:
    buffer = make(tmp_path)
    with contextlib.suppress(KeyboardInterrupt), buffer.one_episode():
        store(buffer, 3)
        raise KeyboardInterrupt
    assert buffer.num_episodes == 0
    assert len(buffer.episodes()) == 0
    with buffer.one_episode():
        store(buffer, 2)
    assert buffer.episodes().lengths.tolist() == [2]
    everything = buffer.episodes(aborted=True)
    assert everything.lengths.tolist() == [3, 2]
    assert everything.flags.tolist() == [2, 1]


def test_circular_buffers_drop_the_oldest_episode(tmp_path: Path) -> None:
    buffer = make(tmp_path, circular=True, max_episodes=3)
    for number in range(7):
        with buffer.one_episode():
            store(buffer, 5, number)
    table = buffer.episodes()
    assert table.ids.tolist() == [4, 5, 6]
    assert buffer.gather(table.starts)["state"][:, 0].tolist() == [4, 5, 6]
    with pytest.raises(IndexError, match="gone"):
        buffer.gather([0])


def test_batches_have_their_fields_in_the_order_of_the_schema(tmp_path: Path) -> None:
    names = ["zeta", "alpha", "mid", "beta"]
    buffer = make(
        tmp_path, fields=dict.fromkeys(names, "int"), meta_fields={"y": "int", "x": "int"}
    )
    memory = buffer.store(beta=1, zeta=2)
    assert list(memory._fields) == names
    buffer.advance_episode()
    assert list(buffer.gather([0])) == names
    assert list(buffer.episodes().meta) == ["y", "x"]


def test_space_is_taken_for_steps_and_not_for_what_may_come(tmp_path: Path) -> None:
    fields = {"frame": ("uint8", (84, 84), 7)}
    with make(tmp_path, max_episodes=1000, max_timesteps=1000, fields=fields) as buffer:
        buffer.store()
        buffer.advance_episode()
    blocks = sum(path.stat().st_blocks for path in buffer.folder.rglob("*"))
    assert blocks * 512 < 200_000


def test_many_fields_are_stored(tmp_path: Path) -> None:
    buffer = make(tmp_path, fields={f"f{n}": ("int", 2) for n in range(100)})
    buffer.store(**{f"f{n}": n for n in range(100)})
    buffer.advance_episode()
    steps = buffer.gather([0])
    assert all((steps[f"f{n}"] == n).all() for n in range(100))


def test_tensors_are_taken_as_they_are(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    buffer = make(tmp_path)
    state = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    memory = buffer.store(state=state, action=torch.tensor([4, 5]), reward=torch.tensor(6.0))
    assert memory.state is state
    buffer.advance_episode()
    out = {"state": torch.zeros(1, 3)}
    buffer.gather([0], ["state"], out)
    assert out["state"].tolist() == [[1, 2, 3]]
    assert buffer.gather([0])["action"].tolist() == [[4, 5]]


def test_a_full_buffer_refuses_and_changes_nothing(tmp_path: Path) -> None:
    buffer = make(tmp_path, max_episodes=1)
    with buffer.one_episode():
        store(buffer, 5)
    for attempt in (lambda: buffer.store(reward=9), lambda: buffer.store_episode(reward=[9])):
        with pytest.raises(ValueError, match="full"):
            attempt()
    assert buffer.gather_ranges([0], [5], 5)["reward"].tolist() == [[0, 1, 2, 3, 4]]
    assert len(buffer.episodes(aborted=True)) == 1
