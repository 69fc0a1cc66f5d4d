"""Options that other libraries have are known by name."""

from __future__ import annotations

from typing import Any

import pytest

import sharpwave as sw
from sharpwave.config.elsewhere import ELSEWHERE


def options(algorithm: Any, **given: Any) -> Any:
    return algorithm.Config(**given)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_an_option_of_another_library_says_what_says_the_same(name: str) -> None:
    with pytest.raises(
        TypeError, match=f"unknown option '{name}' of PPOConfig: {ELSEWHERE[name][:9]}"
    ):
        options(sw.PPO, **{name: 1})


def test_aliases_mean_the_same() -> None:
    config = options(sw.PPO, normalize_advantage=False, use_sde=True, clip_range=0.3)
    assert (config.normalize_advantages, config.use_gsde, config.clip_eps) == (False, True, 0.3)
    assert options(sw.A2C, normalize_advantage=True, rms_prop_eps=1e-3).rms_eps == 1e-3
    config = options(sw.SAC, target_entropy="auto", use_sde=True, n_steps=3)
    assert (config.target_entropy, config.use_gsde, config.n_step) == (None, True, 3)
    assert sw.SAC.Config.from_text({"target_entropy": "auto"}).target_entropy is None
    assert options(sw.TQC, use_sde=True, top_quantiles_to_drop_per_net=3).top_quantiles_to_drop == 3
    assert options(sw.TD3, n_steps=2, target_noise_clip=0.1).n_step == 2


def test_learn_is_train() -> None:
    agent = sw.A2C("CartPole-v1", n_envs=2)
    assert agent.learn(20)["timesteps"] == 20
    assert agent.learn(total_timesteps=10)["timesteps"] == 30
