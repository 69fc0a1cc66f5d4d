"""Updates of stored episodes, and all data at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave import EpisodeBuffer
from tests.unit.episodes.episodes import make, rewards, store


def filled(folder: Path) -> EpisodeBuffer:
    buffer = make(folder, meta_fields={"task": "int", "goal": ("float", 2)})
    for number, length in enumerate([2, 4, 3]):
        with buffer.one_episode(task=number):
            store(buffer, length, number)
    return buffer


def test_update_writes_over_steps_and_fields_of_episodes(tmp_path: Path) -> None:
    buffer = filled(tmp_path)
    buffer.update(1, reward=[9, 8], task=70)
    buffer.update([0, 2], goal=[[1, 2], [3, 4]], reward=[[5, 5, 0], [6, 6, 6]])
    buffer.update(slice(0, 1), state=1.5)
    assert rewards(buffer) == [[5, 5], [9, 8, 2, 3], [6, 6, 6]]
    table = buffer.episodes()
    assert table.meta["task"].tolist() == [0, 70, 2]
    assert table.meta["goal"].tolist() == [[1, 2], [0, 0], [3, 4]]
    assert (buffer.gather([0, 1])["state"] == 1.5).all()
    assert (buffer.gather([2])["state"] == [1, 0, 0]).all()
    buffer.update(task=3)
    assert buffer.episodes().meta["task"].tolist() == [3, 3, 3]
    buffer.update(-1, reward=np.zeros((3, 1)))
    assert rewards(buffer)[2] == [0, 0, 0]
    buffer.close()
    again = EpisodeBuffer.from_folder(buffer.folder, verify=True)
    assert rewards(again) == [[5, 5], [9, 8, 2, 3], [0, 0, 0]]


def test_updates_keep_checksums_right(tmp_path: Path) -> None:
    buffer = filled(tmp_path)
    buffer.flush()
    buffer.verify()
    buffer.update(reward=-1, task=4)
    buffer.verify()
    store(buffer, 3)
    buffer.advance_episode()
    buffer.update(3, reward=-2)
    buffer.flush()
    buffer.verify()


def test_wrong_updates_change_nothing(tmp_path: Path) -> None:
    buffer = filled(tmp_path)
    before = rewards(buffer)
    with pytest.raises(TypeError, match="did you mean 'reward'"):
        buffer.update(reward=1, rewards=2)
    with pytest.raises(ValueError, match="reward must have shape"):
        buffer.update([0, 1], reward=[1, 2, 3])
    with pytest.raises(ValueError, match=r"goal must have shape \(3, 2\)"):
        buffer.update(reward=1, goal=[1, 2, 3])
    with pytest.raises(ValueError, match="fit int32"):
        buffer.update(reward=1, task=2**40)
    with pytest.raises(ValueError, match="finite"):
        buffer.update(task=1, reward=float("nan"))
    with pytest.raises(IndexError, match="from 0 to 2"):
        buffer.update(3, reward=1)
    with pytest.raises(TypeError, match="integers"):
        buffer.update([0.5], reward=1)
    with pytest.raises(TypeError, match="at least one"):
        buffer.update()
    assert rewards(buffer) == before
    assert buffer.episodes().meta["task"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("indices", "values", "lengths"),
    [
        (0, [7, 7, 7], "at most 2 steps.* got 3"),
        (0, [0, 0, 0], "at most 2 steps.* got 3"),
        (1, np.ones((60, 1)), "at most 4 steps.* got 60"),
        (None, np.ones((3, 5)), "at most 4 steps.* got 5"),
        (None, np.ones((1, 51)), "at most 4 steps.* got 51"),
        (None, np.ones((3, 4)), "at most 2 steps for episode 0 .* got 4"),
        ([1, 2], np.ones((2, 4)), "at most 3 steps for episode 1 .* got 4"),
        ([0, 1], np.zeros((2, 3)), "at most 2 steps for episode 0 .* got 3"),
        (slice(1, 3), [[1, 1, 1, 1], [1, 1, 1, np.inf]], "at most 3 steps for episode 1 .* got 4"),
    ],
)
def test_values_beyond_the_end_of_an_episode_are_refused(
    indices: Any, values: Any, lengths: str, tmp_path: Path
) -> None:
    """They were dropped without a word, even those beyond max_timesteps."""
    buffer = filled(tmp_path)
    before = rewards(buffer)
    with pytest.raises(ValueError, match=f"reward must have {lengths}"):
        buffer.update(indices, task=9, reward=values)
    assert rewards(buffer) == before
    assert buffer.episodes().meta["task"].tolist() == [0, 1, 2]


def test_what_get_all_data_gives_can_be_written_back(tmp_path: Path) -> None:
    buffer = filled(tmp_path)
    data = buffer.get_all_data(["reward", "state"], as_numpy=True)
    buffer.update(reward=2 * data["reward"], state=-data["state"])
    assert rewards(buffer) == [[0, 2], [0, 2, 4, 6], [0, 2, 4]]
    again = buffer.get_all_data(["state"], as_numpy=True)
    assert (again["state"] == -data["state"]).all()


def test_get_all_data_pads_with_zeros(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    buffer = filled(tmp_path)
    found = buffer.get_all_data()
    assert set(found) == {"state", "action", "reward", "task", "goal", "episode_lens"}
    assert found["reward"].tolist() == [[0, 1, 0, 0], [0, 1, 2, 3], [0, 1, 2, 0]]
    assert found["episode_lens"].tolist() == [2, 4, 3]
    assert found["action"].dtype == torch.int32
    some = buffer.get_all_data(fields=("reward",), as_numpy=True)
    assert list(some) == ["reward"]
    assert isinstance(some["reward"], np.ndarray)
    assert list(buffer.get_all_data(meta_fields=("task",))) == ["task"]
    with pytest.raises(ValueError, match="did you mean 'task'"):
        buffer.get_all_data(meta_fields=("taks",))
    with pytest.raises(ValueError, match="fields must name"):
        buffer.get_all_data(fields=("rewad",))
    buffer.clear()
    assert buffer.get_all_data() == {}


def test_clear_forgets_and_goes_on(tmp_path: Path) -> None:
    buffer = filled(tmp_path)
    reader = EpisodeBuffer.from_folder(buffer.folder, read_only=True)
    buffer.clear()
    assert len(buffer) == len(reader) == 0
    with pytest.raises(IndexError, match="gone"):
        reader.gather([0])
    with buffer.one_episode():
        store(buffer, 2)
    assert rewards(buffer) == rewards(reader) == [[0, 1]]
    assert buffer.episodes().ids.tolist() == [3]
    with buffer.one_episode(), pytest.raises(RuntimeError, match="open"):
        buffer.clear()
