"""Every on-policy algorithm finds the known value and the known action of the probes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from tests.learning import probes

GAMMA = 0.9

ALGORITHMS: dict[str, Callable[..., Any]] = {
    "ppo": partial(sw.PPO, n_envs=8, n_steps=16, batch_size=64, learning_rate=3e-3, n_epochs=8),
    "a2c": partial(sw.A2C, n_envs=8, n_steps=5, learning_rate=5e-3),
}
STEPS = {"ppo": 4_000, "a2c": 8_000}


def trained(name: str, env: Any, steps: int | None = None, **options: Any) -> Any:
    algorithm = ALGORITHMS[name](env, seed=1, gamma=GAMMA, anneal_lr=True, **options)
    algorithm.train(steps or STEPS[name])
    return algorithm


def value(algorithm: Any, *obs: float) -> float:
    return float(algorithm.actor.values(np.array([obs], np.float32))[0])


@pytest.mark.parametrize("name", ALGORITHMS)
class TestValues:
    def test_a_constant_reward_is_the_value(self, name: str) -> None:
        assert value(trained(name, probes.ConstantValue), 1.0) == pytest.approx(1.0, abs=0.05)

    def test_the_value_follows_the_observation(self, name: str) -> None:
        algorithm = trained(name, probes.ValueOfObservation)
        assert value(algorithm, 1.0) == pytest.approx(1.0, abs=0.1)
        assert value(algorithm, -1.0) == pytest.approx(-1.0, abs=0.1)

    def test_a_delayed_reward_is_discounted_once(self, name: str) -> None:
        algorithm = trained(name, probes.DelayedReward)
        assert value(algorithm, 1.0) == pytest.approx(1.0, abs=0.05)
        assert value(algorithm, 0.0) == pytest.approx(GAMMA, abs=0.05)

    def test_truncation_bootstraps_and_termination_does_not(self, name: str) -> None:
        steps = 3 * STEPS[name]
        cut = trained(name, partial(probes.EndsAfterFive, cut=True), steps, gae_lambda=0.9)
        over = trained(name, partial(probes.EndsAfterFive, cut=False), steps, gae_lambda=0.9)
        assert value(cut, 1.0) == pytest.approx(1 / (1 - GAMMA), rel=0.1)
        assert value(over, 1.0) < 4.1


@pytest.mark.parametrize("name", ALGORITHMS)
class TestPolicies:
    def test_identity(self, name: str) -> None:
        algorithm = trained(name, probes.Identity)
        assert [algorithm.predict(np.array([s], np.float32)) for s in (-1, 1)] == [0, 1]

    @pytest.mark.parametrize(
        "options",
        [{}, {"squash_actions": True}, {"use_gsde": True, "log_std_init": -2.0}],
        ids=["clip", "squash", "gsde"],
    )
    def test_continuous_identity(self, name: str, options: dict[str, Any]) -> None:
        env = probes.ContinuousIdentity
        algorithm = trained(name, env, 3 * STEPS[name], ent_coef=0.0, **options)
        for sign in (-1.0, 1.0):
            action = algorithm.predict(np.array([sign], np.float32))
            assert action[0] == pytest.approx(0.5 * sign, abs=0.25)

    def test_several_discrete_actions(self, name: str) -> None:
        algorithm = trained(name, probes.MultiIdentity, 2 * STEPS[name])
        assert algorithm.predict(np.array([1], np.float32)).tolist() == [2, 0]
        assert algorithm.predict(np.array([-1], np.float32)).tolist() == [1, 1]

    def test_binary_actions(self, name: str) -> None:
        algorithm = trained(name, probes.BinaryIdentity)
        assert algorithm.predict(np.array([1], np.float32)).tolist() == [1, 1, 1]
        assert algorithm.predict(np.array([-1], np.float32)).tolist() == [0, 0, 0]

    def test_masked_actions_are_never_taken(self, name: str) -> None:
        algorithm = trained(name, probes.OnlyAllowed)  # the probe raises on a forbidden action
        assert algorithm.evaluate(20).mean == 1.0

    def test_a_recurrent_policy_remembers(self, name: str) -> None:
        kind = {"ppo": "lstm", "a2c": "gru"}[name]
        algorithm = trained(name, probes.MemoryOfStart, 2 * STEPS[name], recurrent=kind)
        assert algorithm.evaluate(20).mean == 1.0
