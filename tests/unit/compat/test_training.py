"""Training under rlox's names: what differs from sharpwave's own, and what does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
import sharpwave.compat.rlox as rlox
from tests.learning import probes

SMALL: dict[str, Any] = {"n_envs": 2, "n_steps": 16, "batch_size": 16, "n_epochs": 1}


def test_values_are_clipped_by_default_and_only_here() -> None:
    assert rlox.PPO("CartPole-v1", **SMALL).config.clip_vloss is True
    assert sw.PPO("CartPole-v1", **SMALL).config.clip_vloss is False
    assert rlox.PPO("CartPole-v1", clip_vloss=False, **SMALL).config.clip_vloss is False


def test_presets_do_not_clip_values() -> None:
    ours, theirs = sw.PPO.preset("CartPole-v1"), rlox.PPO.preset("CartPole-v1")
    assert theirs.config.to_dict() == ours.config.to_dict()
    assert rlox.PPO.preset("CartPole-v1", clip_vloss=True).config.clip_vloss is True


def test_with_equal_options_it_is_the_same_run() -> None:
    ours = sw.PPO("CartPole-v1", clip_vloss=True, seed=42, **SMALL)
    theirs = rlox.PPO("CartPole-v1", seed=42, **SMALL)
    first, second = ours.train(128), theirs.train(128)
    assert first["loss"] == second["loss"]
    assert first["value_loss"] == second["value_loss"]


@pytest.mark.parametrize(("writer", "reader"), [(sw.PPO, rlox.PPO), (rlox.PPO, sw.PPO)])
def test_checkpoints_load_in_both_classes(writer: Any, reader: Any, tmp_path: Path) -> None:
    saved = writer("CartPole-v1", **SMALL)
    saved.train(64)
    saved.save(tmp_path / "ppo")
    loaded = reader.from_checkpoint(tmp_path / "ppo")
    obs = np.random.default_rng(0).normal(size=(20, 4))
    np.testing.assert_array_equal(loaded.predict(obs), saved.predict(obs))
    assert loaded.config.clip_vloss == saved.config.clip_vloss


class TestTrainer:
    def test_names_give_the_classes_of_the_package(self) -> None:
        trainer = rlox.Trainer("PPO", "CartPole-v1", SMALL)
        assert type(trainer.algo) is rlox.PPO
        assert trainer.algo.seed == 42
        assert type(rlox.Trainer(sw.A2C, "CartPole-v1").algo) is sw.A2C

    def test_options_win_over_the_seed(self) -> None:
        assert rlox.Trainer("a2c", "CartPole-v1", {"seed": 3}, seed=5).algo.seed == 3
        assert rlox.Trainer("a2c", "CartPole-v1", seed=5).algo.seed == 5

    def test_evaluation_has_the_documented_keys(self) -> None:
        trainer = rlox.Trainer("ppo", probes.ConstantValue, SMALL)
        trainer.train(total_timesteps=32)
        assert trainer.evaluate(n_episodes=3, seed=1) == {
            "mean_reward": 1.0,
            "std_reward": 0.0,
            "min_reward": 1.0,
            "max_reward": 1.0,
            "mean_length": 1.0,
            "n_episodes": 3,
        }

    def test_what_was_saved_is_restored_by_name(self, tmp_path: Path) -> None:
        trainer = rlox.Trainer("ppo", "CartPole-v1", SMALL)
        trainer.train(32)
        trainer.save(tmp_path / "a")
        restored = rlox.Trainer.from_checkpoint(tmp_path / "a", "ppo")
        assert restored.algo.timesteps == 32
        assert restored.predict(np.zeros(4)) == trainer.predict(np.zeros(4))

    def test_an_unknown_name_is_refused_with_the_nearest(self) -> None:
        with pytest.raises(ValueError, match=r"'pppo'.*ppo"):
            rlox.Trainer("pppo", "CartPole-v1")


def test_films_take_the_arguments_of_the_original(tmp_path: Path) -> None:
    callback = rlox.VideoRecordingCallback(str(tmp_path), 100, n_episodes=1, verbose=False)
    assert callback.paths == []
