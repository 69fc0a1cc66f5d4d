"""Programs for Stable-Baselines3 learn here what they learn there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import stable_baselines3 as theirs
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

import sharpwave.compat.sb3 as ours

RUNS: dict[str, tuple[str, str, int, int, float]] = {
    # The algorithm, the environment, steps, seeds, and by how much the means of these may differ.
    "ppo": ("PPO", "CartPole-v1", 25_000, 3, 100.0),
    "sac": ("SAC", "Pendulum-v1", 5_000, 1, 100.0),
}


def returns(library: Any, run: str, seed: int) -> float:
    algorithm, env_id, steps, *_ = RUNS[run]
    model = getattr(library, algorithm)("MlpPolicy", env_id, seed=seed).learn(steps)
    mean, _ = evaluate_policy(model, make_vec_env(env_id, 1, seed=100 + seed), n_eval_episodes=20)
    return float(mean)


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_returns_are_those_of_sb3(run: str) -> None:
    means = [
        np.mean([returns(library, run, seed) for seed in range(RUNS[run][3])])
        for library in (ours, theirs)
    ]
    assert means[0] > means[1] - RUNS[run][-1]
