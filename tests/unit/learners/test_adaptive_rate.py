"""Learning rates that follow the KL divergence of the policy from the old one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import sharpwave as sw
from sharpwave.config.schedules import Adaptive
from sharpwave.nn import Adam, FlatParameters
from tests.learning import probes
from tests.reference.rates import adapted

OPTIONS: dict[str, Any] = {
    "n_envs": 4,
    "n_steps": 16,
    "batch_size": 32,
    "hidden": (8,),
    "seed": 3,
    "learning_rate": "adaptive",
}


def rate_of(agent: Any) -> float:
    return float(agent.learner.optimizers["policy"].lr)


@given(
    st.lists(st.sampled_from([0.0, -1e-9, 1e-12, 0.004, 0.005, 0.01, 0.02, 0.03, 1.0, np.nan])),
    st.sampled_from([1e-5, 3e-4, 1e-2]),
)
def test_the_rate_is_that_of_the_rule(kls: list[float], start: float) -> None:
    optimizer = Adam(FlatParameters(torch.nn.Linear(1, 1)), lr=start)
    rates = []
    for kl in kls:
        optimizer.adapt_lr(torch.tensor(kl), 0.01, Adaptive.bounds)
        rates.append(optimizer.lr.item())
    assert rates == adapted(start, kls, 0.01)


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_a_rate_begins_where_it_is_told_to_and_follows_the_policy(backend: str) -> None:
    agent = sw.PPO("CartPole-v1", **OPTIONS, backend=backend)
    assert agent.backend == backend
    assert rate_of(agent) == pytest.approx(1e-3)
    agent.learner.follow(0.5)
    assert rate_of(agent) == pytest.approx(1e-3)
    metrics = agent.train(256)
    assert metrics["learning_rate"] == rate_of(agent)
    assert rate_of(agent) != pytest.approx(1e-3)
    start = sw.PPO("CartPole-v1", **{**OPTIONS, "learning_rate": "adaptive(3e-4)"})
    assert rate_of(start) == pytest.approx(3e-4)


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_a_policy_that_moves_little_is_hurried_and_one_that_moves_much_is_held(
    backend: str,
) -> None:
    rates = []
    for desired_kl in (1e3, 1e-9):
        agent = sw.PPO("CartPole-v1", **OPTIONS, backend=backend, desired_kl=desired_kl)
        agent.train(640)
        rates.append(rate_of(agent))
    assert rates == pytest.approx([1e-2, 1e-5])


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_a_run_goes_on_with_its_rate_bit_for_bit(backend: str, tmp_path: Path) -> None:
    whole, first = (sw.PPO("CartPole-v1", **OPTIONS, backend=backend) for _ in range(2))
    whole.train(512)
    first.train(512, callbacks=StopAt(256))
    assert first.timesteps == 256
    first.save(tmp_path / "agent")
    again = sw.PPO.from_checkpoint(tmp_path / "agent")
    assert again.config.learning_rate == Adaptive()
    assert rate_of(again) == rate_of(first) != pytest.approx(1e-3)
    again.train(256)
    assert rate_of(again) == rate_of(whole)
    assert again.block.tobytes() == whole.block.tobytes()


class StopAt(sw.Callback):
    def __init__(self, timesteps: int) -> None:
        self.timesteps = timesteps

    def on_train_batch(self, algo: Any = None, **_: Any) -> bool:
        return bool(algo.timesteps < self.timesteps)


def test_it_composes_with_an_early_stop() -> None:
    """The step that went too far lowers the rate; those after it, which are not taken, do not."""
    agent = sw.PPO("CartPole-v1", **OPTIONS, backend="torch", target_kl=1e-9, desired_kl=1e-9)
    learner, batch = agent.learner, agent.loop.collect()
    learner.device = torch.device("meta")  # where nobody looks whether it stopped
    learner.update(batch)
    assert learner.moved_too_far
    assert rate_of(agent) >= 1e-3 / 1.5**2


@pytest.mark.parametrize("kind", [sw.APPO, sw.HybridPPO])
def test_others_of_the_family_have_it(kind: Any) -> None:
    agent = kind("CartPole-v1", **OPTIONS)
    agent.train(512)
    assert rate_of(agent) != pytest.approx(1e-3)
    agent.close()


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_every_group_of_agents_has_its_own(backend: str) -> None:
    options = {name: OPTIONS[name] for name in ("n_envs", "hidden", "seed", "learning_rate")}
    agent = sw.MAPPO("mpe2/simple_spread_v3", **options, n_steps=25, backend=backend)
    agent.train(400)
    (optimizer,) = agent.learner.optimizers.values()
    assert float(optimizer.lr) != pytest.approx(1e-3)
    agent.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": "adaptve"}, "learning_rate must be a number, .* or 'adaptive'"),
        ({"learning_rate": "adaptive(1)"}, "learning_rate must be between 1e-05 and 0.01, got 1.0"),
        ({"learning_rate": "adaptive", "desired_kl": 0}, "desired_kl must be greater than 0"),
        ({"desired_kl": 0.02}, "desired_kl must be 0.01 unless learning_rate is 'adaptive'"),
    ],
)
def test_what_means_nothing_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sw.PPOConfig(**options)


@pytest.mark.parametrize("kind", [sw.A2CConfig, sw.IMPALAConfig, sw.SACConfig])
def test_algorithms_without_an_old_policy_refuse_it(kind: Any) -> None:
    with pytest.raises(ValueError, match="learning_rate must be"):
        kind(learning_rate="adaptive")


@pytest.mark.parametrize("rate", ["adaptive", "adaptive(0.0003)"])
def test_files_keep_it(rate: Any) -> None:
    config = sw.PPOConfig(learning_rate=rate, desired_kl=0.02)
    assert config.to_dict()["learning_rate"] == rate
    assert sw.PPOConfig.from_dict(config.to_dict()) == config
    assert sw.PPOConfig.from_text({"learning_rate": rate}).learning_rate == config.learning_rate


def test_a_probe_is_learned() -> None:
    agent = sw.PPO(
        probes.ContinuousIdentity, n_envs=8, n_steps=32, learning_rate="adaptive", seed=0
    )
    agent.train(6_000)
    assert agent.evaluate(20).mean > -0.1
