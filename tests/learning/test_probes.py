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

PPO = partial(sw.PPO, n_steps=8, batch_size=64, learning_rate=5e-3, n_epochs=6)
A2C = partial(sw.A2C, n_steps=5, learning_rate=1e-2)
UNROLLS: dict[str, Any] = {"n_actors": 1, "n_steps": 8, "deterministic": True}
APPO = partial(sw.APPO, **UNROLLS, batch_size=64, learning_rate=5e-3, n_epochs=6)
IMPALA = partial(sw.IMPALA, **UNROLLS, learning_rate=5e-3)
ALGORITHMS: dict[str, Callable[..., Any]] = {
    "ppo": partial(PPO, backend="torch"),
    "ppo-native": partial(PPO, backend="native"),
    "a2c": partial(A2C, backend="torch"),
    "a2c-native": partial(A2C, backend="native"),
    "impala": partial(IMPALA, backend="torch"),
    "impala-native": partial(IMPALA, backend="native"),
    "appo": partial(APPO, backend="torch"),
    "appo-native": partial(APPO, backend="native"),
}
STEPS = {
    name: 4_000 if name.partition("-")[0] in ("ppo", "appo") else 12_000 for name in ALGORITHMS
}


def trained(name: str, env: Any, steps: int | None = None, **options: Any) -> Any:
    make = partial(ALGORITHMS[name], n_envs=32, hidden=(32, 32), gamma=GAMMA, anneal_lr=True)
    algorithm = make(env, seed=1, **options)
    algorithm.train(steps or STEPS[name])
    algorithm.close()
    return algorithm


def value(algorithm: Any, *obs: float) -> float:
    return float(algorithm.actor.values(np.array([obs], np.float32))[0])


def knows_the_sign(algorithm: Any) -> None:
    for sign in (-1.0, 1.0):
        action = algorithm.predict(np.array([sign], np.float32))
        assert action[0] == pytest.approx(0.5 * sign, abs=0.15)


@pytest.mark.parametrize("name", ALGORITHMS)
class TestValues:
    @pytest.mark.long(but=["ppo-native"])
    def test_a_constant_reward_is_the_value(self, name: str) -> None:
        assert value(trained(name, probes.ConstantValue), 1.0) == pytest.approx(1.0, abs=0.02)

    @pytest.mark.long(but=["ppo-native"])
    def test_the_value_follows_the_observation(self, name: str) -> None:
        algorithm = trained(name, probes.ValueOfObservation)
        assert value(algorithm, 1.0) == pytest.approx(1.0, abs=0.02)
        assert value(algorithm, -1.0) == pytest.approx(-1.0, abs=0.02)

    @pytest.mark.long(but=["ppo-native"])
    def test_a_delayed_reward_is_discounted_once(self, name: str) -> None:
        algorithm = trained(name, probes.DelayedReward)
        assert value(algorithm, 1.0) == pytest.approx(1.0, abs=0.02)
        assert value(algorithm, 0.0) == pytest.approx(GAMMA, abs=0.02)

    @pytest.mark.long
    def test_truncation_bootstraps_and_termination_does_not(self, name: str) -> None:
        steps = 2 * STEPS[name]
        of_unrolls = name.partition("-")[0] in ("impala", "appo")
        traces = {"vtrace_lambda" if of_unrolls else "gae_lambda": 0.9}
        cut = trained(name, partial(probes.EndsAfterFive, cut=True), steps, **traces)
        over = trained(name, partial(probes.EndsAfterFive, cut=False), steps, **traces)
        assert value(cut, 1.0) == pytest.approx(1 / (1 - GAMMA), rel=0.02)
        # The mean λ-return of the five steps, with λ = 0.9, is the value itself at 2.75.
        assert value(over, 1.0) == pytest.approx(2.75, abs=0.2)


@pytest.mark.parametrize("name", ALGORITHMS)
class TestPolicies:
    @pytest.mark.long(but=["ppo-native"])
    def test_identity(self, name: str) -> None:
        algorithm = trained(name, probes.Identity)
        assert [algorithm.predict(np.array([s], np.float32)) for s in (-1, 1)] == [0, 1]

    @pytest.mark.long
    def test_continuous_identity(self, name: str) -> None:
        knows_the_sign(trained(name, probes.ContinuousIdentity, ent_coef=0.0, log_std_init=-1.0))

    @pytest.mark.long(but=["ppo-native"])
    def test_several_discrete_actions(self, name: str) -> None:
        algorithm = trained(name, probes.MultiIdentity)
        assert algorithm.predict(np.array([1], np.float32)).tolist() == [2, 0]
        assert algorithm.predict(np.array([-1], np.float32)).tolist() == [1, 1]

    @pytest.mark.long(but=["ppo-native"])
    def test_binary_actions(self, name: str) -> None:
        algorithm = trained(name, probes.BinaryIdentity)
        assert algorithm.predict(np.array([1], np.float32)).tolist() == [1, 1, 1]
        assert algorithm.predict(np.array([-1], np.float32)).tolist() == [0, 0, 0]

    @pytest.mark.long(but=["ppo-native"])
    def test_masked_actions_are_never_taken(self, name: str) -> None:
        algorithm = trained(name, probes.OnlyAllowed)  # the probe raises on a forbidden action
        assert algorithm.evaluate(20).mean == 1.0


@pytest.mark.parametrize("name", ["ppo", "a2c", "impala", "appo"])
class TestTorch:
    """Cases that only torch computes."""

    @pytest.mark.long
    @pytest.mark.parametrize("option", ["squash_actions", "use_gsde"])
    def test_continuous_identity(self, name: str, option: str) -> None:
        # gSDE sums the noise of all hidden units.
        noise = -2.0 if option == "use_gsde" else -1.0
        options: dict[str, Any] = {"ent_coef": 0.0, "log_std_init": noise, option: True}
        knows_the_sign(trained(name, probes.ContinuousIdentity, **options))

    @pytest.mark.long
    def test_a_recurrent_policy_remembers(self, name: str) -> None:
        kind = {"ppo": "lstm", "a2c": "gru", "impala": "lstm", "appo": "gru"}[name]
        algorithm = trained(
            name, probes.MemoryOfStart, 2 * STEPS[name], recurrent=kind, learning_rate=5e-3
        )
        assert algorithm.evaluate(20).mean == 1.0
