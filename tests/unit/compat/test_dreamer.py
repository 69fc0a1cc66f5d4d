"""DreamerV3 under rlox's names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.compat.rlox.algorithms.dreamer import DreamerV3
from sharpwave.compat.rlox.config import DreamerV3Config

SMALL: dict[str, Any] = {
    "deter_dim": 16,
    "stoch_dim": 2,
    "stoch_classes": 4,
    "batch_size": 4,
    "seq_len": 4,
    "imagination_horizon": 2,
}


def test_names_of_rlox_are_those_of_its_options() -> None:
    config = DreamerV3("CartPole-v1", **SMALL).config
    found = (config.deter, config.latents, config.classes, config.sequence_length)
    assert (*found, config.imagination) == (16, 2, 4, 4, 2)
    with pytest.raises(TypeError, match="'deter' of DreamerV3Config is given twice"):
        DreamerV3("CartPole-v1", deter=16, deter_dim=32)


def test_the_balance_weighs_both_divergences() -> None:
    for options in ({"kl_balance": 1.0}, {"kl_balance": 0.25}, {}):
        config = DreamerV3("CartPole-v1", **options).config
        assert config.dynamics_coef == options.get("kl_balance", 0.8)
        assert config.representation_coef == pytest.approx(1.0 - config.dynamics_coef)
    with pytest.raises(ValueError, match="kl_balance must be between 0 and 1, got 2"):
        DreamerV3("CartPole-v1", kl_balance=2)


def test_the_configuration_takes_what_the_one_of_rlox_has(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "lambda_": 0.9,
        "horizon": 15,
        "kl_balance": 0.75,
        "latent_dim": 64,
        "seq_len": 50,
    }
    config = DreamerV3Config(**options)
    assert (config.lam, config.imagination, config.sequence_length) == (0.9, 15, 50)
    assert (config.dynamics_coef, config.representation_coef) == (0.75, 0.25)
    assert DreamerV3Config.from_dict(options) == config
    assert DreamerV3Config.from_text({name: str(x) for name, x in options.items()}) == config
    assert config.merge(kl_balance=1.0).representation_coef == 0.0
    config.to_yaml(tmp_path / "config.yaml")
    assert DreamerV3Config.from_yaml(tmp_path / "config.yaml") == config
    agent = DreamerV3("CartPole-v1", config=config, **SMALL)
    assert agent.config.lam == 0.9
    with pytest.raises(ValueError, match="kl_balance must be between 0 and 1, got -1"):
        DreamerV3Config.from_dict({"kl_balance": -1})
    with pytest.raises(TypeError, match="'dynamics_coef' of DreamerV3Config is given twice"):
        DreamerV3Config.from_dict({"kl_balance": 0.5, "dynamics_coef": 1.0})


def test_sizes_of_the_spaces_are_those_of_the_environment() -> None:
    """rlox kept its default sizes, which ended in an error of shapes."""
    agent = DreamerV3("Pendulum-v1", obs_dim=4, n_actions=2, latent_dim=7, **SMALL)
    assert agent.observation_space.shape == (3,)
    assert agent.learner.actor.size == 1
    assert agent.predict(np.zeros(3, np.float32)).shape == (1,)


@pytest.mark.long
def test_training_measures_what_rlox_measures_and_checkpoints_are_those_of_the_agent(
    tmp_path: Path,
) -> None:
    agent = DreamerV3("CartPole-v1", 2, **SMALL)
    metrics = agent.train(60)
    assert agent.gradient_steps > 0
    for name in ("wm_loss", "actor_loss", "critic_loss", "mean_reward"):
        assert np.isfinite(metrics[name]), name
    parts = ("reconstruction_loss", "reward_loss", "continue_loss")
    total = sum(metrics[name] for name in parts)
    total += 0.8 * metrics["dynamics_loss"] + 0.2 * metrics["representation_loss"]
    assert metrics["wm_loss"] == pytest.approx(total, rel=1e-4)
    agent.save(tmp_path / "checkpoint")
    again = DreamerV3.from_checkpoint(tmp_path / "checkpoint")
    assert again.config == agent.config
    obs = np.array([0.1, -0.2, 0.0, 0.3], np.float32)
    assert again.predict(obs) == agent.predict(obs)
    other = sw.DreamerV3.from_checkpoint(tmp_path / "checkpoint")
    assert other.predict(obs) == agent.predict(obs)
