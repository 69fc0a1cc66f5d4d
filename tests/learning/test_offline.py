"""Offline algorithms find what a dataset is worth: small probes by default, Pendulum at night."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.datasets import make_dataset, normalized_score
from sharpwave.types import Array

SEEDS = (101, 102, 103)
"""Not those that settings were chosen with."""
QUICK: dict[str, Any] = {"hidden": 64, "learning_rate": 3e-3, "tau": 0.05, "seed": 1}
LEARNERS: dict[str, Any] = {
    "td3_bc": lambda data: sw.TD3BC(data, alpha=20.0, **QUICK),
    "rebrac": lambda data: sw.ReBRAC(data, actor_bc_coef=0.05, **{**QUICK, "batch_size": 256}),
    "iql": lambda data: sw.IQL(data, expectile=0.9, temperature=20.0, **QUICK),
    "cql": lambda data: sw.CQL(data, cql_alpha=0.1, n_random_actions=4, **QUICK),
}


def guesses(n: int = 4000) -> dict[str, Array]:
    """One step: random actions, rewarded for being near the observation."""
    generator = np.random.default_rng(0)
    obs = generator.uniform(-0.8, 0.8, (n, 1)).astype(np.float32)
    actions = generator.uniform(-1, 1, (n, 1)).astype(np.float32)
    return {
        "obs": obs,
        "next_obs": np.zeros_like(obs),
        "actions": actions,
        "rewards": -10 * np.square(actions - obs)[:, 0],
        "terminated": np.ones(n, np.bool_),
    }


def detours(n: int = 4000) -> dict[str, Array]:
    """Two steps: the first action leads somewhere, and only being there is rewarded."""
    generator = np.random.default_rng(0)
    place = generator.uniform(-0.8, 0.8, n).astype(np.float32)
    action = generator.uniform(-1, 1, n).astype(np.float32)
    distance = action - place
    zeros, ones = np.zeros(n, np.float32), np.ones(n, np.float32)
    first, second = np.stack((place, zeros), 1), np.stack((distance, ones), 1)
    ends = np.stack((zeros, zeros), 1)
    return {
        "obs": np.stack((first, second), 1).reshape(-1, 2),
        "next_obs": np.stack((second, ends), 1).reshape(-1, 2),
        "actions": np.stack((action, generator.uniform(-1, 1, n)), 1).reshape(-1, 1),
        "rewards": np.stack((zeros, -10 * np.square(distance)), 1).reshape(-1),
        "terminated": np.stack((zeros, ones), 1).reshape(-1),
    }


@pytest.mark.parametrize("name", LEARNERS)
class TestProbes:
    @pytest.mark.long
    def test_the_best_of_random_actions_are_found(self, name: str) -> None:
        algorithm = LEARNERS[name](guesses())
        algorithm.train(500)
        obs = np.linspace(-0.7, 0.7, 15, dtype=np.float32)[:, None]
        assert np.abs(algorithm.predict(obs) - obs).mean() < 0.15

    @pytest.mark.long
    def test_what_comes_later_counts(self, name: str) -> None:
        algorithm = LEARNERS[name](detours())
        algorithm.train(700)
        places = np.linspace(-0.7, 0.7, 15, dtype=np.float32)
        obs = np.stack((places, np.zeros_like(places)), 1)
        assert np.abs(algorithm.predict(obs)[:, 0] - places).mean() < 0.2


@pytest.mark.long
def test_cloning_finds_the_mean_of_random_actions() -> None:
    algorithm = sw.BC(guesses(), hidden=64, learning_rate=3e-3, seed=1)
    algorithm.train(300)
    obs = np.linspace(-0.7, 0.7, 15, dtype=np.float32)[:, None]
    assert np.abs(algorithm.predict(obs)).mean() < 0.1


def score(algorithm: Any, steps: int) -> float:
    """Between random actions (0) and the scripted expert (100)."""
    algorithm.train(steps)
    mean: float = algorithm.evaluate(20).mean
    algorithm.close()
    return normalized_score("Pendulum-v1", mean)


@pytest.fixture(scope="module")
def mixed() -> dict[str, Array]:
    return make_dataset("Pendulum-v1", "mixed")


def pendulum(cls: Any, data: Any, **options: Any) -> Any:
    return cls(data, env="Pendulum-v1", **options)


@pytest.mark.long
def test_cloning_the_best_episodes_is_as_good_as_the_expert(mixed: Any) -> None:
    best = pendulum(sw.BC, mixed, top_share=0.4, hidden=64, learning_rate=1e-3, seed=1)
    assert score(best, 1500) >= 90


BARS: dict[str, tuple[Any, dict[str, Any], int, float]] = {
    "bc of the best": (sw.BC, {"top_share": 0.4}, 3000, 90.0),
    # Most of the data is random, so that cloning all of it must count for little.
    "td3_bc": (sw.TD3BC, {"alpha": 10.0}, 8000, 80.0),
    "rebrac": (sw.ReBRAC, {"batch_size": 256, "normalize_obs": True}, 4000, 60.0),
    "iql": (sw.IQL, {"expectile": 0.8, "temperature": 10.0, "learning_rate": 1e-3}, 4000, 85.0),
    "cql": (sw.CQL, {"cql_alpha": 1.0, "n_random_actions": 4}, 2500, 85.0),
}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", BARS)
def test_pendulum_from_mixed_data(name: str, mixed: Any) -> None:
    cls, options, steps, bar = BARS[name]
    scores = [score(pendulum(cls, mixed, seed=seed, **options), steps) for seed in SEEDS]
    assert np.mean(scores) >= bar, scores


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_plain_cloning_of_mixed_data_stays_well_below(mixed: Any) -> None:
    scores = [score(pendulum(sw.BC, mixed, seed=seed), 3000) for seed in SEEDS]
    assert np.mean(scores) <= 70, scores
