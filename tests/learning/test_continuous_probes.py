"""The algorithms for continuous actions find the known values and actions of the probes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from tests.learning import probes

GAMMA = 0.9
SETTINGS: dict[str, Any] = {
    "n_envs": 8,
    "hidden": 32,
    "learning_starts": 100,
    "batch_size": 128,
    "buffer_size": 4000,
    "learning_rate": sw.Linear(1e-2, 1e-4),
    "gamma": GAMMA,
    "tau": 0.1,
    "seed": 1,
}
# Without the bonus for entropy, values are those of the rewards.
SOFT: dict[str, Any] = {**SETTINGS, "ent_coef": 0.0}
CROSSED = {k: v for k, v in SOFT.items() if k != "tau"}
ALGORITHMS: dict[str, Callable[..., Any]] = {
    "sac": partial(sw.SAC, **SOFT),
    "td3": partial(sw.TD3, exploration_noise=0.3, **SETTINGS),
    "ddpg": partial(sw.DDPG, exploration_noise=0.3, **SETTINGS),
    "tqc": partial(sw.TQC, n_quantiles=5, top_quantiles_to_drop=1, **SOFT),
    "crossq": partial(sw.CrossQ, critic_hidden=(64, 64), **CROSSED),
}
# Values of CrossQ that are normalized by running statistics lag behind those it learns.
VALUED = [name for name in ALGORITHMS if name != "crossq"]
STEPS = 2_400


def trained(name: str, env: Any, steps: int = STEPS, **options: Any) -> Any:
    algorithm = ALGORITHMS[name](env, **options)
    algorithm.train(steps)
    return algorithm


def best_actions(name: str, **options: Any) -> list[float]:
    """The learned action for either observation, in small steps as its tanh needs."""
    if name in ("sac", "tqc", "crossq"):
        options = {"ent_coef": 0.05, **options}  # or it would stop exploring
    if name in ("td3", "crossq"):
        options = {"policy_delay": 1, **options}
    # Where CrossQ stands would hang on its last steps, and on the rounding of the machine.
    rate, steps = (sw.Linear(1e-3, 1e-4), 6400) if name == "crossq" else (3e-3, 3200)
    env = probes.ContinuousIdentity  # raises on an action out of bounds
    algorithm = trained(name, env, steps, hidden=64, learning_rate=rate, **options)
    return [float(algorithm.predict(np.array([sign], np.float32))[0]) for sign in (-1, 1)]


def value(algorithm: Any, obs: float, action: float = 0.0) -> float:
    with torch.no_grad():
        values = algorithm.critics(torch.tensor([[obs]]), torch.tensor([[action]]))
    return float(values.mean())


@pytest.mark.parametrize("name", VALUED)
class TestValues:
    @pytest.mark.long(but=["sac"])
    def test_the_value_follows_the_observation(self, name: str) -> None:
        algorithm = trained(name, probes.with_continuous_actions(probes.ValueOfObservation))
        assert value(algorithm, 1.0) == pytest.approx(1.0, abs=0.05)
        assert value(algorithm, -1.0) == pytest.approx(-1.0, abs=0.05)

    @pytest.mark.long(but=["sac"])
    def test_a_delayed_reward_is_discounted_once(self, name: str) -> None:
        algorithm = trained(name, probes.with_continuous_actions(probes.DelayedReward))
        assert value(algorithm, 1.0) == pytest.approx(1.0, abs=0.05)
        assert value(algorithm, 0.0) == pytest.approx(GAMMA, abs=0.05)

    @pytest.mark.long
    @pytest.mark.parametrize("n_step", [1, 3])
    def test_truncation_bootstraps_and_termination_does_not(self, name: str, n_step: int) -> None:
        env: Any = probes.with_continuous_actions(probes.EndsAfterFive)
        options: dict[str, Any] = {"n_step": n_step, "gamma": 0.5}
        cut = trained(name, partial(env, cut=True), **options)
        over = trained(name, partial(env, cut=False), **options)
        assert value(cut, 1.0) == pytest.approx(2.0, abs=0.1)
        if name == "tqc":  # whose quantiles are smoothed, and bootstrap from that
            assert value(over, 1.0) < value(cut, 1.0) - 0.2
            return
        # Five steps look alike; the value is the mean of what they lead to.
        left = [sum(0.5**t for t in range(min(n_step, k))) for k in range(1, 6)]
        goes_on = [0.5**n_step * (k > n_step) for k in range(1, 6)]
        assert value(over, 1.0) == pytest.approx(np.mean(left) / (1 - np.mean(goes_on)), abs=0.1)


@pytest.mark.long
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_best_action_is_found_within_bounds_of_its_own(name: str) -> None:
    tolerance = 0.6 if name in ("ddpg", "crossq") else 0.25
    assert best_actions(name) == pytest.approx([-0.5, 0.5], abs=tolerance)


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [
        {"ent_coef": "auto_0.05"},
        {"use_gsde": True, "log_std_init": -1.0},
        {"prioritized": True, "seed": 2},
    ],
    ids=["learned-entropy", "gsde", "prioritized"],
)
def test_sac_finds_it_in_other_ways_too(options: dict[str, Any]) -> None:
    assert best_actions("sac", **options) == pytest.approx([-0.5, 0.5], abs=0.25)


class TestDiscreteSAC:
    def train(self, env: Any) -> Any:
        algorithm = sw.DiscreteSAC(env, **{**SETTINGS, "ent_coef": 0.05})
        algorithm.train(STEPS)
        return algorithm

    @pytest.mark.long
    def test_identity(self) -> None:
        algorithm = self.train(probes.Identity)
        assert [algorithm.predict(np.array([s], np.float32)) for s in (-1, 1)] == [0, 1]

    @pytest.mark.long
    def test_masked_actions_are_never_taken(self) -> None:
        algorithm = self.train(probes.OnlyAllowed)  # the probe raises on a forbidden action
        assert algorithm.evaluate(20).mean == 1.0
