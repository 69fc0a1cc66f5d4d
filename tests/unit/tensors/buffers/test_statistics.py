"""Episode statistics, on every device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sharpwave import StatsTracker
from tests.contract.tensor_cases import needs_cuda
from tests.examples import examples
from tests.reference.tensors import EpisodeOracle

on_each_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
REASONS = ["fell", "won"]


def both(num_envs: int, window: int, n_steps: int, seed: int, device: str) -> Any:
    """A tracker and an oracle that saw the same steps."""
    tracker = StatsTracker(
        num_envs,
        max_ep_info_buffer=window,
        extra_metrics_keys=["score"],
        done_reason_keys=REASONS,
    )
    oracle = EpisodeOracle(num_envs, window, ["score"])
    random = np.random.default_rng(seed)
    for step in range(n_steps):
        dones = random.random(num_envs) < 0.3
        rewards = random.normal(size=num_envs)
        scores = random.integers(0, 5, num_envs).astype(np.float64)
        reasons = [random.choice([*REASONS, "slept"]) if done else None for done in dones]
        oracle.update(dones.tolist(), rewards.tolist(), {"score": scores.tolist()}, reasons)
        told: Any = reasons
        if step % 2:
            told = {
                key: torch.tensor([reason == key for reason in reasons], device=device)
                for key in REASONS
            }
        tracker.update(
            torch.from_numpy(dones).to(device),
            torch.from_numpy(rewards).to(device),
            {"score": torch.from_numpy(scores).to(device), "other": 1},
            told,
        )
    return tracker, oracle


def check(tracker: StatsTracker, oracle: EpisodeOracle) -> None:
    found = tracker.get_statistics()
    assert tracker.episode_count == len(oracle.episodes)
    assert tracker.trajectory_num == len(oracle.values("rewards"))
    if not oracle.episodes:
        assert found == {}
        assert found.detailed == {}
        return
    values = {name: np.array(oracle.values(name)) for name in ("rewards", "lengths", "score")}
    values |= {f"Step/{name}": values[name] / values["lengths"] for name in ("rewards", "score")}
    rates = {
        f"Rollout/Done/{key}_rate": np.mean([reason == key for reason in oracle.values("reason")])
        for key in REASONS
    }
    means = {f"Rollout/{name}": column.mean() for name, column in values.items()}
    assert found == pytest.approx({**means, **rates})
    detailed = {
        f"Rollout/{name}_{what}": getattr(column, what)()
        for name, column in values.items()
        for what in ("mean", "std", "min", "max")
    }
    assert found.detailed == pytest.approx({**detailed, **rates}, abs=1e-9)
    for name, column in values.items():
        np.testing.assert_allclose(tracker.get_raw_values()[f"Rollout/{name}"], column)


@on_each_device
@pytest.mark.parametrize("window", [1, 4, 100])
def test_statistics_are_those_of_the_last_episodes(device: str, window: int) -> None:
    check(*both(3, window, 40, 0, device))


@settings(max_examples=examples(30))
@given(
    num_envs=st.integers(1, 9),
    window=st.integers(1, 12),
    n_steps=st.integers(0, 12),
    seed=st.integers(0, 1000),
)
def test_statistics_are_right_also_when_more_episodes_end_at_once_than_are_kept(
    num_envs: int, window: int, n_steps: int, seed: int
) -> None:
    check(*both(num_envs, window, n_steps, seed, "cpu"))


def test_rewards_of_several_parts_are_added_up() -> None:
    tracker = StatsTracker(2)
    tracker.update(np.array([True, True]), np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert tracker.get_statistics()["Rollout/rewards"] == 5.0


def test_a_metric_may_be_one_number_for_all() -> None:
    tracker = StatsTracker(2, extra_metrics_keys=["level", "score"])
    tracker.update([True, True], [0.0, 0.0], {"level": 3, "score": np.array([[1.0], [2.0]])})
    found = tracker.get_statistics()
    assert (found["Rollout/level"], found["Rollout/score"]) == (3.0, 1.5)


def test_one_episode_has_no_deviation() -> None:
    tracker = StatsTracker(1, category="Eval")
    tracker.update([True], [2.0])
    assert tracker.get_statistics().detailed["Eval/rewards_std"] == 0.0


@on_each_device
def test_a_tracker_goes_on_from_its_state(device: str) -> None:
    tracker, oracle = both(3, 4, 11, 0, device)
    other = StatsTracker(
        3, max_ep_info_buffer=4, extra_metrics_keys=["score"], done_reason_keys=REASONS
    )
    assert other.state_dict() == {}
    other.load_state_dict(tracker.state_dict())
    for one in (tracker, other):
        one.update([True] * 3, [1.0] * 3, {"score": [1.0] * 3}, ["fell", None, "won"])
    oracle.update([True] * 3, [1.0] * 3, {"score": [1.0] * 3}, ["fell", None, "won"])
    check(tracker, oracle)
    check(other, oracle)
    with pytest.raises(ValueError, match="running must have shape"):
        StatsTracker(2, device=device).load_state_dict(tracker.state_dict())
    tracker.reset()
    assert tracker.get_statistics() == {}
    other.load_state_dict({})
    assert other.trajectory_num == 0


def test_a_restart_forgets_what_is_in_flight() -> None:
    tracker = StatsTracker(1)
    tracker.update([False], [5.0])
    tracker.restart()
    tracker.update([True], [1.0])
    assert tracker.get_statistics()["Rollout/rewards"] == 1.0


def test_bad_arguments_are_named() -> None:
    tracker = StatsTracker(2, done_reason_keys=["fell"])
    with pytest.raises(ValueError, match="rewards must have shape"):
        tracker.update([True, False], [1.0])
    with pytest.raises(ValueError, match="dones must have shape"):
        tracker.update([True], [1.0, 2.0])
    with pytest.raises(ValueError, match="done_reasons must have length 2"):
        tracker.update([True, True], [1.0, 2.0], done_reasons=["fell"])
    with pytest.raises(TypeError, match="extra_metrics_keys"):
        StatsTracker(1, extra_metrics_keys="score")
    with pytest.raises(ValueError, match="extra_metrics_keys"):
        StatsTracker(1, extra_metrics_keys=["rewards"])
    assert tracker.get_statistics() == {}
