"""Offline datasets of episodes on disk: what follows a step is right at every end."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave import OfflineDatasetBuffer
from sharpwave.episodes import EpisodeBuffer
from sharpwave.episodes.transitions import transitions_of

FIELDS = {
    "obs": ("float32", (2,)),
    "action": "float32",
    "reward": "float32",
    "terminated": "bool",
    "truncated": "bool",
}
ENDS = ["terminated", "truncated", None, "terminated"]
LENGTHS = [3, 2, 2, 1]


def fill(folder: Path, *, final_obs: bool) -> EpisodeBuffer:
    """Episodes that end in every way; an observation is [episode, step]."""
    meta = {"final_obs": ("float32", (2,))} if final_obs else {}
    buffer = EpisodeBuffer(folder, 10, 10, FIELDS, meta)
    for number, (length, end) in enumerate(zip(LENGTHS, ENDS, strict=True)):
        steps: dict[str, Any] = {
            "obs": [[number, step] for step in range(length)],
            "action": np.arange(length) / 2,
            "reward": np.ones(length),
            "terminated": (np.arange(length) == length - 1) & (end == "terminated"),
            "truncated": (np.arange(length) == length - 1) & (end == "truncated"),
        }
        if final_obs:
            steps["final_obs"] = [number, length]
        buffer.store_episode(**steps)
    return buffer


def test_the_final_observation_follows_the_last_step(tmp_path: Path) -> None:
    with fill(tmp_path, final_obs=True) as buffer:
        arrays = transitions_of(buffer)
    assert (arrays["next_obs"] == arrays["obs"] + [0, 1]).all()
    assert arrays["terminated"].tolist() == [0, 0, 1, 0, 0, 0, 0, 1]
    assert arrays["truncated"].tolist() == [0, 0, 0, 0, 1, 0, 1, 0]


def test_without_one_an_end_that_bootstraps_is_left_out(tmp_path: Path) -> None:
    with fill(tmp_path, final_obs=False) as buffer:
        arrays = transitions_of(buffer)
    assert arrays["obs"].tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [2, 0], [3, 0]]
    assert arrays["next_obs"].tolist() == [[0, 1], [0, 2], [0, 2], [1, 1], [2, 1], [3, 0]]
    assert arrays["terminated"].tolist() == [0, 0, 1, 0, 0, 1]
    assert arrays["truncated"].tolist() == [0, 0, 0, 1, 1, 0]


@pytest.mark.parametrize("as_folder", [True, False])
def test_a_dataset_of_a_folder_or_a_buffer(as_folder: bool, tmp_path: Path) -> None:
    buffer = fill(tmp_path, final_obs=True)
    data = OfflineDatasetBuffer.from_episodes(tmp_path if as_folder else buffer, normalize=True)
    assert (len(data), data.n_episodes()) == (8, 4)
    assert data.stats()["mean_return"] == 2
    batch = data.sample(20, seed=0)
    steps = (batch["next_obs"] - batch["obs"]) * data.obs_std
    np.testing.assert_allclose(steps, np.tile([0, 1], (20, 1)), atol=1e-5)
    assert not buffer._is_closed


def test_one_of_several_observations_is_chosen_by_its_name(tmp_path: Path) -> None:
    fields = {"obs": {"a": "float32", "b": ("float32", (2,))}, "action": "int", "reward": "float"}
    meta = {"final_obs": {"a": "float32", "b": ("float32", (2,))}}
    with EpisodeBuffer(tmp_path, 10, 10, fields, meta) as buffer:
        final = {"a": 9, "b": [8, 8]}
        obs = {"a": [0, 1], "b": np.zeros((2, 2))}
        buffer.store_episode(obs=obs, action=[0, 1], reward=[0, 0], final_obs=final)
        with pytest.raises(
            ValueError, match=r"obs must name one of the fields \['obs.a', 'obs.b'\]"
        ):
            OfflineDatasetBuffer.from_episodes(buffer)
        with pytest.raises(ValueError, match=r"obs must be one of .* got 'obs.c'"):
            OfflineDatasetBuffer.from_episodes(buffer, obs="obs.c")
        arrays = transitions_of(buffer, obs="obs.a")
    assert arrays["next_obs"].tolist() == [1, 9]
    assert arrays["truncated"].tolist() == [False, True]


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with EpisodeBuffer(tmp_path / "a", 10, 10, FIELDS) as buffer:
        with pytest.raises(ValueError, match="episodes must hold at least one episode, got 0"):
            OfflineDatasetBuffer.from_episodes(buffer)
        buffer.store_episode(obs=[[0, 0]], action=[0], reward=[0])
        with pytest.raises(ValueError, match="must have 'final_obs' or end by termination"):
            OfflineDatasetBuffer.from_episodes(buffer)
    with EpisodeBuffer(tmp_path / "b", 10, 10, {"obs": "float"}) as buffer:
        buffer.store_episode(obs=[0])
        with pytest.raises(ValueError, match=r"must have a field 'action', got \['obs'\]"):
            OfflineDatasetBuffer.from_episodes(buffer)


def test_aborted_episodes_are_taken_when_asked_for(tmp_path: Path) -> None:
    with fill(tmp_path, final_obs=True) as buffer:
        with contextlib.suppress(ZeroDivisionError), buffer.one_episode(final_obs=[4, 1]):
            buffer.store(obs=[4, 0], reward=1)
            raise ZeroDivisionError
        assert len(transitions_of(buffer)["obs"]) == 8
        arrays = transitions_of(buffer, aborted=True)
    assert arrays["next_obs"][-1].tolist() == [4, 1]
    assert arrays["truncated"][-1]
