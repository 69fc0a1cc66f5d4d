"""Presets name real options, and an unknown one gets the nearest."""

from typing import Any

import pytest

from sharpwave.algorithms.registry import algorithm_class
from sharpwave.config.presets import PRESETS, find_preset, preset, presets
from sharpwave.config.schedules import Linear
from sharpwave.config.world_model_presets import SIZES, TASKS


def test_the_settings_of_cartpole() -> None:
    settings = preset("ppo", "CartPole-v1")
    assert settings["learning_rate"] == Linear(1e-3, 0)
    assert settings["total_timesteps"] == 100_000


def test_settings_are_the_callers_own() -> None:
    preset("ppo", "CartPole-v1")["n_steps"] = 1
    assert preset("ppo", "CartPole-v1")["n_steps"] == 32


@pytest.mark.parametrize("env_id", ["ALE/Pong-v5", "PongNoFrameskip-v4", "Atari"])
def test_all_atari_games_share_one_preset(env_id: str) -> None:
    assert preset("ppo", env_id)["clip_eps"] == Linear(0.1)


def test_an_unknown_environment_gets_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"no preset for 'LunarLander-v2'; did you mean 'LunarLa"):
        preset("ppo", "LunarLander-v2")
    with pytest.raises(ValueError, match="`sharpwave list presets` shows those of a2c, "):
        preset("ppo", "xyzzy")


def test_what_is_not_there_is_not_found() -> None:
    assert find_preset("ppo", "xyzzy") is None
    assert find_preset("xyzzy", "CartPole-v1") is None
    assert presets("xyzzy") == []


@pytest.mark.parametrize(
    ("algorithm", "env_id"), [(name, env_id) for name in PRESETS for env_id in presets(name)]
)
def test_every_preset_is_a_configuration(algorithm: str, env_id: str) -> None:
    settings = preset(algorithm, env_id)
    assert "total_timesteps" in settings or env_id in {*SIZES, *TASKS}  # those are no environments
    config: Any = algorithm_class(algorithm).Config.from_dict(settings)
    if "n_steps" in settings and "batch_size" in settings:
        assert config.n_envs * settings["n_steps"] % settings["batch_size"] == 0
