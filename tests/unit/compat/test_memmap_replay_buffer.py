"""The buffer of memmap-replay-buffer: arguments, attributes and order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave.compat import rl_buffer
from sharpwave.compat.memmap_replay_buffer import ReplayBuffer, ReplayDatasetTrajectory

FIELDS: dict[str, Any] = {"state": ("float", 2), "reward": "float", "seen": ("bool", (), True)}


def make(path: Path, n: int, **options: Any) -> ReplayBuffer:
    given = {"meta_fields": {"task": "int"}, "circular": True, "overwrite": True, **options}
    buffer = ReplayBuffer(path, 4, 6, FIELDS, **given)
    for number in range(n):
        length = 2 + number % 3
        steps = np.arange(length)
        buffer.store_episode(
            state=np.full((length, 2), number), reward=10 * number + steps, task=number
        )
    return buffer


def slots(n: int, size: int = 4) -> list[int]:
    """The number of the episode in each slot, as memmap-replay-buffer fills them."""
    held: list[int] = [-1] * size
    for number in range(n):
        held[number % size] = number
    return [number for number in held if number >= 0]


@pytest.mark.parametrize("n", [1, 3, 4, 5, 6, 8, 11])
def test_episodes_are_in_the_order_of_their_slots(n: int, tmp_path: Path) -> None:
    """After a wrap the oldest came first; there it is the slot that counts."""
    buffer = make(tmp_path / "a", n)
    expected = slots(n)
    assert buffer.get_all_data()["task"].tolist() == expected
    assert [int(batch["task"]) for batch in buffer.dataloader(1)] == expected
    found = [
        (int(b["_indices"][0, 0]), int(b["task"]))
        for b in buffer.dataloader(1, timestep_level=True, return_indices=True)
    ]
    assert sorted(set(found)) == list(enumerate(expected))
    assert [int(item["task"]) for item in ReplayDatasetTrajectory(str(tmp_path / "a"))] == expected
    buffer.update(0, reward=-1.0, task=99)
    assert buffer.get_all_data()["task"].tolist() == [99, *expected[1:]]
    assert (buffer.data["reward"][0, : buffer.episode_lens[0]] == -1).all()


def test_attributes(tmp_path: Path) -> None:
    """None of them was there."""
    buffer = make(tmp_path / "a", 6, flush_every_store_step=0)
    assert buffer.fieldnames == {"state", "reward", "seen"}
    assert buffer.meta_fieldnames == {"task", "episode_lens"}
    assert buffer.shapes == {"state": (2,), "reward": (), "seen": ()}
    assert buffer.dtypes == {"state": np.float32, "reward": np.float32, "seen": np.bool_}
    lens = [2 + number % 3 for number in slots(6)]
    assert buffer.episode_lens.dtype == np.int32
    assert buffer.episode_lens.tolist() == lens
    assert set(buffer.data) == buffer.fieldnames
    assert buffer.data["state"].shape == (4, 6, 2)
    reward = np.zeros((4, 6), np.float32)
    for slot, number in enumerate(slots(6)):
        reward[slot, : lens[slot]] = 10 * number + np.arange(lens[slot])
    np.testing.assert_array_equal(buffer.data["reward"], reward)
    assert buffer.meta_data["task"].tolist() == slots(6)
    assert buffer.meta_data["episode_lens"].tolist() == lens
    with pytest.raises(ValueError, match="read-only"):
        buffer.data["reward"][0, 0] = 1.0
    few = make(tmp_path / "b", 2, circular=False)
    assert few.episode_lens.tolist() == [2, 3, 0, 0]
    assert few.meta_data["task"].tolist() == [0, 1, 0, 0]


def test_arguments_of_the_original_are_taken(tmp_path: Path) -> None:
    """`flush_every_store_step` and a second positional argument of loaders were refused."""
    buffer = ReplayBuffer(tmp_path / "a", 4, 6, FIELDS, None, False, True, False, 3)
    with buffer.one_episode():
        for t in range(5):
            buffer.store(reward=t)
    by_position = [batch["n_step_lens"].tolist() for batch in buffer.dataloader(2, 3)]
    by_name = [batch["n_step_lens"].tolist() for batch in buffer.dataloader(2, n_steps=3)]
    assert by_position == by_name == [[3, 3], [2, 1]]
    assert len(buffer.dataset(3)) == 4
    with pytest.raises(ValueError, match="flush_every_store_step must be at least 0"):
        ReplayBuffer(tmp_path / "b", 4, 6, FIELDS, flush_every_store_step=-1)
    again = ReplayBuffer.from_folder(tmp_path / "a")
    assert type(again) is ReplayBuffer
    assert again.episode_lens.tolist() == [5, 0, 0, 0]


def test_rl_buffer_exports_all_of_its_classes() -> None:
    """`from rl_buffer import SharedReplayBuffer, ResetStrategy` failed."""
    for name in ("SharedReplayBuffer", "ResetStrategy", "PrioritizedReplayBuffer", "ReplayBuffer"):
        assert getattr(rl_buffer, name).__name__
        assert name in rl_buffer.__all__
