"""Actors and critics swing a pendulum up: quick bars by default, full ones over three seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sharpwave as sw

SMALL: dict[str, Any] = {"hidden": (64, 64), "learning_rate": 2e-3, "batch_size": 128}


def final_return(algorithm: Any, steps: int) -> float:
    """Mean return of the policy at the end."""
    algorithm.train(steps)
    return float(algorithm.evaluate(10).mean)


@pytest.mark.long
def test_sac_swings_up_quickly() -> None:
    assert final_return(sw.SAC("Pendulum-v1", seed=0, learning_starts=200, **SMALL), 3200) >= -600


@pytest.mark.long
def test_td3_swings_up_quickly() -> None:
    options: dict[str, Any] = {"gamma": 0.98, "exploration_noise": 0.2, **SMALL}
    assert final_return(sw.TD3("Pendulum-v1", seed=0, learning_starts=500, **options), 6000) >= -400


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize(
    ("algorithm", "steps", "bar"), [(sw.SAC, 8_000, -200.0), (sw.TD3, 10_000, -220.0)]
)
def test_a_pendulum_stays_up(algorithm: Any, steps: int, bar: float, backend: str) -> None:
    options: dict[str, Any] = {"learning_rate": 1e-3, "learning_starts": 100, "backend": backend}
    if algorithm is sw.TD3:
        options = {**options, "gamma": 0.98, "learning_starts": 1000}
    returns = [
        final_return(algorithm("Pendulum-v1", seed=s, **options), steps) for s in (101, 102, 103)
    ]
    assert np.mean(returns) >= bar, returns
