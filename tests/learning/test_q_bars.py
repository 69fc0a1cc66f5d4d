"""Q-learning balances a pole: a quick bar by default, the full ones over three seeds at night.

Its returns go up and down, so the best of several evaluations counts, and the mean of the last.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.config.presets import preset

SEEDS = (101, 102, 103)
"""Not those that settings were chosen with."""
EVALUATIONS = 10


class Evaluations(sw.Callback):
    """Mean returns at every tenth of a run."""

    def __init__(self) -> None:
        self.returns: list[float] = []

    def on_train_batch(self, *, algo: Any, **_: Any) -> None:
        if algo.timesteps * EVALUATIONS >= algo.target_timesteps * (len(self.returns) + 1):
            self.returns.append(algo.evaluate(10).mean)


def evaluated(algorithm: Any) -> list[float]:
    """The mean returns in the course of training."""
    evaluations = Evaluations()
    algorithm.train(callbacks=evaluations)
    algorithm.close()
    return evaluations.returns


@pytest.mark.long
def test_dqn_improves_on_cartpole() -> None:
    returns = evaluated(sw.DQN.preset("CartPole-v1", total_timesteps=20_000, seed=1))
    assert max(returns) >= 80, returns


EXTRAS: dict[str, Any] = {"dueling": True, "prioritized": True, "n_step": 3}
# The preset of C51 is one for ten times as many steps.
CATEGORICAL: dict[str, Any] = {
    **preset("dqn", "CartPole-v1"),
    "learning_rate": 1e-3,
    "n_atoms": 51,
    "v_min": 0.0,
    "v_max": 100.0,
}


@pytest.mark.slow
@pytest.mark.timeout(3600)
class TestAtNight:
    @pytest.mark.parametrize("backend", ["native", "torch"])
    @pytest.mark.parametrize("options", [{}, EXTRAS], ids=["dqn", "with all extras"])
    def test_dqn_balances_the_pole(self, options: dict[str, Any], backend: str) -> None:
        settings: dict[str, Any] = {**options, "backend": backend}
        runs = np.array(
            [evaluated(sw.DQN.preset("CartPole-v1", seed=seed, **settings)) for seed in SEEDS]
        )
        assert runs.max(1).mean() >= 450, runs
        assert runs[:, -3:].mean() >= 195, runs

    @pytest.mark.parametrize(
        ("cls", "options"),
        [(sw.C51, CATEGORICAL), (sw.QRDQN, {})],
        ids=["c51", "qr_dqn"],
    )
    def test_distributions_improve_on_it(self, cls: Any, options: dict[str, Any]) -> None:
        settings = {**options, "total_timesteps": 20_000, "seed": 1}
        returns = evaluated(cls.preset("CartPole-v1", **settings))
        assert max(returns) >= 80, returns
