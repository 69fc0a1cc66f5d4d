"""Guarantees to programs for rl-buffer, where the original let them down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sharpwave.compat import rl_buffer
from sharpwave.compat.rl_buffer.base_buffer import ResetStrategy
from sharpwave.compat.rl_buffer.prioritized_replay_buffer import PrioritizedReplayBuffer
from sharpwave.compat.rl_buffer.replay_buffer import ReplayBuffer
from sharpwave.compat.rl_buffer.rollout_buffer import RolloutBuffer
from sharpwave.compat.rl_buffer.shared_replay_buffer import SharedReplayBuffer
from sharpwave.compat.rl_buffer.stats_tracker import StatsTracker
from tests.contract.tensor_cases import needs_cuda


def numbered(buffer: ReplayBuffer, first: int, count: int) -> None:
    for number in range(first, first + count):
        row = torch.full((buffer.num_envs,), float(number))
        wide = row[:, None]
        buffer.add(wide, wide, row, torch.zeros(buffer.num_envs), wide, row * 0)


def test_the_package_has_the_names_of_the_original() -> None:
    for name in rl_buffer.__all__:
        assert getattr(rl_buffer, name) is not None
    assert issubclass(ReplayBuffer, rl_buffer.BaseBuffer)


def test_the_ring_goes_round() -> None:
    buffer = ReplayBuffer(4, 1, (1,), (1,), StatsTracker(1), reset_strategy=ResetStrategy.RECURRENT)
    numbered(buffer, 0, 9)
    assert buffer.gather(torch.arange(4)).observations[:, 0].tolist() == [8, 5, 6, 7]


def test_advantages_stop_at_the_step_that_ended_the_episode() -> None:
    buffer = RolloutBuffer(4, 1, (1,), (1,), StatsTracker(1), gamma=0.99, gae_lambda=0.95)
    for done in (False, True, False, False):
        one, half = torch.ones(1), torch.tensor([0.5])
        buffer.add(one[:, None], one[:, None], one, torch.tensor([done]), half, half)
    buffer.compute_returns_and_advantages(torch.tensor([0.7]), torch.tensor([False]))
    found = next(buffer.get(4, shuffle=False)).advantages
    np.testing.assert_allclose(found, [1.46525, 0.5, 2.1170, 1.1930], atol=1e-4)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
def test_steps_are_stored_on_the_device_that_was_asked_for(device: str) -> None:
    for cls in (ReplayBuffer, RolloutBuffer):
        assert cls(4, 1, (1,), (1,), device=device).store_device.type == device
    rollout = RolloutBuffer(4, 1, (1,), (1,), device=device)
    assert rollout.stored("obs").device.type == device


def test_next_observations_have_the_dtype_of_observations() -> None:
    buffer = ReplayBuffer(4, 1, (2, 2), (1,), StatsTracker(1), obs_dtype=torch.uint8)
    image = torch.full((1, 2, 2), 255, dtype=torch.uint8)
    buffer.add(image, torch.zeros(1, 1), torch.zeros(1), torch.zeros(1), image, torch.zeros(1))
    batch = buffer.get(1)
    assert batch.observations.dtype == batch.next_observations.dtype == torch.uint8
    assert batch.next_observations.eq(255).all()


def test_a_partly_filled_rollout_has_no_zero_rows() -> None:
    buffer = RolloutBuffer(4, 1, (1,), (1,), StatsTracker(1))
    one = torch.ones(1)
    buffer.add(one[:, None], one[:, None], one, one, one, one)
    buffer.compute_returns_and_advantages(one, one)
    batches = list(buffer.get(4))
    assert [batch.observations.tolist() for batch in batches] == [[[1.0]]]


def test_adding_updates_the_statistics() -> None:
    tracker = StatsTracker(2)
    buffer = ReplayBuffer(4, 2, (1,), (1,), tracker)
    wide, row = torch.ones(2, 1), torch.ones(2)
    buffer.add(wide, wide, row, torch.tensor([True, False]), wide, row * 0)
    assert tracker.get_statistics()["Rollout/rewards"] == 1.0


def test_priorities_belong_to_the_rows_of_their_indices_after_the_ring_went_round() -> None:
    buffer = PrioritizedReplayBuffer(4, 2, (1,), (1,), StatsTracker(2))
    numbered(buffer, 0, 11)
    chosen = np.array([3])
    buffer.update_priorities(np.arange(8), np.zeros(8))
    buffer.update_priorities(chosen, np.array([1e6]))
    batch = buffer.get(8)
    assert batch.indices.eq(3).float().mean() > 0.8
    stored = buffer.gather(batch.indices)
    assert torch.equal(stored.observations, batch.observations)
    assert buffer.gather(chosen).observations.item() == 9.0


def test_buffers_have_what_the_original_lacks(tmp_path: Path) -> None:
    options: dict[str, Any] = {"obs_shape": {"image": (2,)}, "action_shape": (1,), "seed": 3}
    buffer = ReplayBuffer(4, 1, **options)
    one = torch.ones(1)
    for _ in range(3):
        obs = {"image": torch.randn(1, 2)}
        buffer.add(obs, one[:, None], one, one, obs, truncated=one)
    buffer.save(tmp_path / "buffer")
    again = ReplayBuffer.load(tmp_path / "buffer")
    assert torch.equal(again.get(3).observations["image"], buffer.get(3).observations["image"])
    assert buffer.get(1).terminateds.tolist() == [False]


def test_a_shared_buffer_is_one_whatever_process_made_it() -> None:
    buffer = SharedReplayBuffer(4, 1, (1,), (1,))
    numbered(buffer, 0, 9)
    assert set(buffer.get(4).rewards.tolist()) <= {5.0, 6.0, 7.0, 8.0}
    assert buffer.gather(torch.arange(4)).observations[:, 0].tolist() == [8, 5, 6, 7]
