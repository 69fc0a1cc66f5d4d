"""Episodes side by side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.episodes.episodes import make, rewards, store


def test_batches_become_episodes_of_their_own_lengths(tmp_path: Path) -> None:
    buffer = make(tmp_path, meta_fields={"task": "int", "score": "float"})
    with buffer.one_episode(task=1):
        store(buffer, 2)
    lengths = np.array([3, 1, 4])
    with buffer.batched_episode(3, task=[7, 8, 9]):
        for t in range(4):
            buffer.store_batch(
                active=lengths > t,
                state=np.full((3, 3), t),
                action=np.arange(6).reshape(3, 2),
                reward=np.array([10, 20, 30]) + t,
            )
        buffer.store_meta_batch(score=[0.5, 1.5, 2.5])
    table = buffer.episodes()
    assert table.lengths.tolist() == [2, 3, 1, 4]
    assert table.meta["task"].tolist() == [1, 7, 8, 9]
    assert table.meta["score"].tolist() == [0, 0.5, 1.5, 2.5]
    assert rewards(buffer)[1:] == [[10, 11, 12], [20], [30, 31, 32, 33]]
    assert buffer.gather(table.starts)["action"][1:].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert not list((buffer.folder / "staging").iterdir())


def test_an_episode_of_a_batch_without_steps_leaves_nothing(tmp_path: Path) -> None:
    buffer = make(tmp_path)
    with buffer.batched_episode(3):
        buffer.store_batch(np.array([True, False, True]), reward=[1, 2, 3])
    assert rewards(buffer, aborted=True) == [[1], [3]]
    assert buffer.num_episodes == 2


def test_batches_open_by_themselves_and_end_with_advance(tmp_path: Path) -> None:
    buffer = make(tmp_path)
    for t in range(2):
        buffer.store_batch(reward=[t, t + 10])
    with pytest.raises(ValueError, match="must be 2"):
        buffer.advance_episode(3)
    buffer.advance_episode(2)
    assert rewards(buffer) == [[0, 1], [10, 11]]


def test_a_batch_too_large_for_a_buffer_that_is_nearly_full_is_refused_whole(
    tmp_path: Path,
) -> None:
    buffer = make(tmp_path, max_episodes=3)
    with buffer.one_episode():
        store(buffer, 1)
    with pytest.raises(ValueError, match="full"):
        buffer.store_batch(reward=[1, 2, 3])
    with pytest.raises(ValueError, match="full"):
        buffer.batched_episode(3).__enter__()
    buffer.store_batch(reward=[1, 2])
    buffer.advance_episode()
    assert rewards(buffer, aborted=True) == [[0], [1], [2]]


def test_circular_batches_push_the_oldest_out(tmp_path: Path) -> None:
    buffer = make(tmp_path, max_episodes=3, circular=True)
    for number in range(4):
        buffer.store_batch(reward=[number, number + 10])
        buffer.advance_episode()
    assert rewards(buffer) == [[12], [3], [13]]
    with pytest.raises(ValueError, match="at most max_episodes"):
        buffer.store_batch(reward=[1, 2, 3, 4])


def test_wrong_batches_store_nothing(tmp_path: Path) -> None:
    buffer = make(tmp_path, max_timesteps=2)
    with buffer.batched_episode(2):
        buffer.store_batch(reward=[1, 2])
        with pytest.raises(ValueError, match=r"reward must have shape \(2,\), got \(3,\)"):
            buffer.store_batch(reward=[1, 2, 3])
        with pytest.raises(ValueError, match=r"active must have shape \(2,\)"):
            buffer.store_batch(np.array([True]), reward=[1, 2])
        with pytest.raises(TypeError, match="active must be of bools"):
            buffer.store_batch(active=[1, 0], reward=[1, 2])
        with pytest.raises(TypeError, match="did you mean 'reward'"):
            buffer.store_batch(rewrd=[1, 2])
        with pytest.raises(RuntimeError, match="batch"):
            buffer.store(reward=1)
        buffer.store_batch(reward=[3, 4])
        with pytest.raises(ValueError, match="max_timesteps"):
            buffer.store_batch(reward=[5, 6])
        with pytest.raises(RuntimeError, match="open already"):
            buffer.one_episode().__enter__()
    assert rewards(buffer) == [[1, 3], [2, 4]]


def test_long_batches_grow_their_files(tmp_path: Path) -> None:
    buffer = make(tmp_path, max_timesteps=5000, fields={"a": ("float", (100,)), "reward": "int"})
    with buffer.batched_episode(2):
        for t in range(1500):
            buffer.store_batch(a=np.full((2, 100), t), reward=[t, -t])
    table = buffer.episodes()
    found = buffer.gather_ranges(table.starts, table.lengths, 1500)
    assert (found["a"][:, :, 7] == np.arange(1500)).all()
    assert (found["reward"] == np.arange(1500) * [[1], [-1]]).all()


def test_a_field_may_be_called_active(tmp_path: Path) -> None:
    buffer = make(tmp_path, fields={"active": "bool"})
    buffer.store_batch(np.array([True, False]), active=[True, True])
    buffer.advance_episode()
    assert buffer.gather([0])["active"].tolist() == [True]
    assert buffer.num_episodes == 1
