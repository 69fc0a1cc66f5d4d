"""Datasets by name hold what their names say, whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.datasets import (
    KINDS,
    Part,
    collect,
    episode_returns,
    expert_ids,
    make_dataset,
    mixture,
    normalized_score,
    read_description,
)
from sharpwave.datasets.kinds import LEVELS, parts_of
from sharpwave.episodes.transitions import transitions_of
from sharpwave.errors import SharpwaveIOError


@pytest.mark.long
def test_the_pendulum_mixture_is_40_noisy_and_60_random_episodes() -> None:
    data = make_dataset("Pendulum-v1", "mixed", seed=3)
    assert data["obs"].shape == (20_000, 3)
    assert not data["terminated"].any()
    np.testing.assert_array_equal(np.flatnonzero(data["truncated"]) % 200, 199)
    scores = normalized_score("Pendulum-v1", episode_returns(data))
    assert scores.shape == (100,)
    assert scores[:40].mean() > 90
    assert abs(scores[40:].mean()) < 8
    buffer = sw.OfflineDatasetBuffer(**data)
    assert buffer.n_episodes() == 100


@pytest.mark.long
@pytest.mark.parametrize("env_id", ["Pendulum-v1", "MountainCar-v0"])
def test_the_kinds_are_ordered_by_their_scores(env_id: str) -> None:
    scores = {
        kind: normalized_score(
            env_id, episode_returns(make_dataset(env_id, kind, n_steps=6000)).mean()
        )
        for kind in ("random", "medium-replay", "medium", "medium-expert", "expert")
    }
    assert abs(scores["random"]) < 10
    assert 30 < scores["medium"] < 70
    assert 90 < scores["expert"] < 110
    assert scores["random"] < scores["medium-replay"] < scores["medium"]
    assert scores["medium"] < scores["medium-expert"] < scores["expert"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_steps", [1, 7, 1000])
def test_every_kind_has_exactly_its_steps(kind: str, n_steps: int) -> None:
    assert len(make_dataset("CartPole-v1", kind, n_steps=n_steps)["rewards"]) == n_steps


def test_every_expert_has_its_levels_of_noise() -> None:
    assert list(LEVELS) == expert_ids()


def test_a_mixture_is_its_parts_and_comes_again_by_its_seed() -> None:
    parts = [Part("expert", 300, noise=0.2), Part(n_episodes=4)]
    first, again = (mixture("CartPole-v1", parts, seed=5) for _ in range(2))
    other = mixture("CartPole-v1", parts, seed=6)
    alone = collect("CartPole-v1", "expert", 300, noise=0.2, seed=5, n_envs=4)
    np.testing.assert_array_equal(first["obs"][:300], alone["obs"])
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
    assert not np.array_equal(first["obs"][:300], other["obs"][:300])
    assert first["truncated"][299]


@pytest.mark.long
def test_a_folder_says_how_it_was_made(tmp_path: Path) -> None:
    with make_dataset("Pendulum-v1", "mixed", tmp_path / "x", n_steps=1000, seed=2) as buffer:
        found = read_description(buffer.folder)
        arrays = make_dataset("Pendulum-v1", "mixed", n_steps=1000, seed=2)
        np.testing.assert_array_equal(transitions_of(buffer)["obs"], arrays["obs"])
    mean = episode_returns(arrays).mean()
    assert found.pop("versions")["gymnasium"]
    assert found == {
        "env_id": "Pendulum-v1",
        "kind": "mixed",
        "seed": 2,
        "parts": [
            {"policy": "expert", "n_steps": 400, "noise": 1.0},
            {"policy": "random", "n_steps": 600},
        ],
        "n_episodes": 5,
        "n_steps": 1000,
        "mean_return": pytest.approx(mean),
        "std_return": pytest.approx(episode_returns(arrays).std()),
        "score": pytest.approx(normalized_score("Pendulum-v1", mean)),
    }
    assert read_description(tmp_path) == {}


@pytest.mark.long
def test_nothing_is_overwritten_unless_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    make_dataset("CartPole-v1", "random", folder, n_steps=50).close()
    with pytest.raises(SharpwaveIOError, match="exists; overwrite replaces it"):
        make_dataset("CartPole-v1", "expert", folder, n_steps=60)
    assert read_description(folder)["n_steps"] == 50
    make_dataset("CartPole-v1", "expert", folder, n_steps=60, overwrite=True).close()
    assert read_description(folder)["n_steps"] == 60
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_dataset_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fails(obs: Any) -> Any:
        raise ZeroDivisionError

    parts = [Part("random", 50), Part(fails, 50)]
    with pytest.raises(ZeroDivisionError):
        mixture("CartPole-v1", parts, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_policies_are_named_in_words(tmp_path: Path) -> None:
    agent = sw.PPO("CartPole-v1", n_envs=2, n_steps=16)

    def still(obs: Any) -> Any:
        return np.zeros(len(obs), np.int64)

    parts = [Part(agent, 10, deterministic=False), Part(still, n_episodes=1)]
    mixture("CartPole-v1", parts, tmp_path / "x").close()
    assert read_description(tmp_path / "x")["parts"] == [
        {"policy": "ppo", "n_steps": 10, "deterministic": False},
        {"policy": "still", "n_episodes": 1},
    ]


def test_random_data_need_no_expert() -> None:
    data = make_dataset("CliffWalking-v1", "random", n_steps=20)
    assert data["obs"].shape == (20,)


def test_bad_names_are_explained() -> None:
    with pytest.raises(ValueError, match="unknown kind 'mixd'; did you mean 'mixed'"):
        parts_of("CartPole-v1", "mixd", 10)
    with pytest.raises(ValueError, match="no scripted expert for 'FrozenLake-v1'"):
        make_dataset("FrozenLake-v1", "expert")
    with pytest.raises(ValueError, match="parts must hold at least one part"):
        mixture("CartPole-v1", [])
