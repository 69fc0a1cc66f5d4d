"""Every kind of Q-learning finds the known value and the known action of the probes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from tests.learning import probes

KINDS: dict[str, Any] = {
    "dqn": sw.DQN,
    "single": partial(sw.DQN, double_dqn=False, loss="mse", tau=0.05),
    "dueling": partial(sw.DQN, dueling=True),
    "noisy": partial(sw.DQN, noisy=True),
    "prioritized": partial(sw.DQN, prioritized=True),
    "three steps": partial(sw.DQN, n_step=3),
    "c51": partial(sw.C51, v_min=-2.0, v_max=6.0, n_atoms=41, adam_eps=1e-8),
    "qr_dqn": partial(sw.QRDQN, n_quantiles=15, adam_eps=1e-8),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def trained(kind: str, env: Any, steps: int = 2000, **options: Any) -> Any:
    settings: dict[str, Any] = {
        "n_envs": 8,
        "hidden": (32, 32),
        "learning_rate": sw.Linear(1e-2, 1e-4),
        "learning_starts": 200,
        "target_update_freq": 60,
        "exploration_fraction": 0.5,
        "exploration_final_eps": 0.2,
        "gamma": 0.8,
        "seed": 1,
    }
    algorithm = KINDS[kind](env, **{**settings, **options})
    algorithm.train(steps)
    return algorithm


def value(algorithm: Any, *obs: float) -> float:
    """The value of the best action."""
    with torch.no_grad():
        algorithm.policy.remove_noise()
        output = algorithm.policy(torch.tensor([obs]))
    native = algorithm.backend == "native"  # whose output is the values
    return float((output if native else algorithm.learner.values(output)).max())


def best(algorithm: Any, sign: float) -> Any:
    return np.asarray(algorithm.predict(np.array([sign], np.float32))).tolist()


def near(kind: str, expected: float) -> Any:
    return pytest.approx(expected, abs=0.2 if kind == "noisy" else 0.1)


@every_kind
class TestValues:
    @pytest.mark.long(but=["dqn"])
    def test_a_constant_reward_is_the_value(self, kind: str) -> None:
        assert value(trained(kind, probes.ConstantValue), 1.0) == near(kind, 1.0)

    @pytest.mark.long(but=["dqn"])
    def test_the_value_follows_the_observation(self, kind: str) -> None:
        algorithm = trained(kind, probes.ValueOfObservation)
        assert value(algorithm, 1.0) == near(kind, 1.0)
        assert value(algorithm, -1.0) == near(kind, -1.0)

    @pytest.mark.long(but=["dqn"])
    def test_a_delayed_reward_is_discounted_once(self, kind: str) -> None:
        algorithm = trained(kind, probes.DelayedReward, gamma=0.5)
        assert value(algorithm, 1.0) == near(kind, 1.0)
        assert value(algorithm, 0.0) == near(kind, 0.5)

    @pytest.mark.long(but=["dqn"])
    def test_truncation_bootstraps_and_termination_does_not(self, kind: str) -> None:
        cut = trained(kind, partial(probes.EndsAfterFive, cut=True), gamma=0.6)
        over = trained(kind, partial(probes.EndsAfterFive, cut=False), gamma=0.6)
        assert value(cut, 1.0) == near(kind, 2.5)
        # One step in five ends here, so V = 1 + 4/5 · 0.6 V; three steps at a time find 1.86.
        assert value(over, 1.0) == pytest.approx(1.92, abs=0.2)


@every_kind
class TestActions:
    @pytest.mark.long(but=["dqn"])
    def test_identity(self, kind: str) -> None:
        algorithm = trained(kind, probes.Identity)
        assert [best(algorithm, sign) for sign in (-1, 1)] == [0, 1]

    @pytest.mark.long(but=["dqn"])
    def test_several_discrete_actions(self, kind: str) -> None:
        algorithm = trained(kind, probes.MultiIdentity)
        assert best(algorithm, 1) == [2, 0]
        assert best(algorithm, -1) == [1, 1]

    @pytest.mark.long(but=["dqn"])
    def test_binary_actions(self, kind: str) -> None:
        algorithm = trained(kind, probes.BinaryIdentity)
        assert best(algorithm, 1) == [1, 1, 1]
        assert best(algorithm, -1) == [0, 0, 0]

    @pytest.mark.long(but=["dqn"])
    def test_masked_actions_are_never_taken(self, kind: str) -> None:
        algorithm = trained(kind, probes.OnlyAllowed)  # the probe raises on a forbidden action
        assert algorithm.evaluate(20).mean == 1.0
