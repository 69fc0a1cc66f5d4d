"""Options that other libraries have are known by name."""

from __future__ import annotations

import pytest

import sharpwave as sw
from sharpwave.config.elsewhere import ELSEWHERE


@pytest.mark.parametrize("name", ELSEWHERE)
def test_an_option_of_another_library_says_what_says_the_same(name: str) -> None:
    with pytest.raises(
        TypeError, match=f"unknown option '{name}' of PPOConfig: {ELSEWHERE[name][:9]}"
    ):
        sw.PPO.Config(**{name: 1})


def test_aliases_mean_the_same() -> None:
    config = sw.PPO.Config(normalize_advantage=False, use_sde=True, clip_range=0.3)
    assert (config.normalize_advantages, config.use_gsde, config.clip_eps) == (False, True, 0.3)
    assert sw.A2C.Config(normalize_advantage=True, rms_prop_eps=1e-3).rms_eps == 1e-3
    config = sw.SAC.Config(target_entropy="auto", use_sde=True, n_steps=3)
    assert (config.target_entropy, config.use_gsde, config.n_step) == (None, True, 3)
    assert sw.SAC.Config.from_text({"target_entropy": "auto"}).target_entropy is None
    assert sw.TQC.Config(use_sde=True, top_quantiles_to_drop_per_net=3).top_quantiles_to_drop == 3
    assert sw.TD3.Config(n_steps=2, target_noise_clip=0.1).n_step == 2


def test_learn_is_train() -> None:
    agent = sw.A2C("CartPole-v1", n_envs=2)
    assert agent.learn(20)["timesteps"] == 20
    assert agent.learn(total_timesteps=10)["timesteps"] == 30
