"""Programs for rlox's offline algorithms."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
import sharpwave.compat.rlox as rlox
from sharpwave.types import Array

N, OBS, ACT = 300, 4, 2
NAMES = ("TD3BC", "IQL", "CQL", "BC")
METRICS = {
    "TD3BC": {"critic_loss", "actor_loss"},
    "IQL": {"value_loss", "q_loss", "actor_loss"},
    "CQL": {"critic_loss", "cql_loss", "actor_loss", "alpha", "cql_alpha"},
    "BC": {"loss"},
}


def dataset() -> sw.OfflineDatasetBuffer:
    """Flat arrays with uint8 flags, as rlox takes them."""
    generator = np.random.default_rng(0)
    return rlox.OfflineDatasetBuffer(
        generator.normal(size=N * OBS).astype(np.float32),
        generator.normal(size=N * OBS).astype(np.float32),
        generator.uniform(-1, 1, N * ACT).astype(np.float32),
        generator.normal(size=N).astype(np.float32),
        (np.arange(N) % 50 == 49).astype(np.uint8),
        np.zeros(N, np.uint8),
    )


def made(name: str, *args: Any, **options: Any) -> Any:
    return getattr(rlox, name)(dataset(), OBS, ACT, *args, **{"batch_size": 16, **options})


@pytest.mark.parametrize("name", NAMES)
class TestEvery:
    def test_trains_and_returns_the_documented_metrics(self, name: str) -> None:
        algo = made(name, hidden=8)
        metrics = algo.train(n_gradient_steps=5)
        assert METRICS[name] <= metrics.keys()
        assert algo.predict(np.zeros(OBS, np.float32)).shape == (ACT,)
        assert isinstance(algo, rlox.OfflineAlgorithm)

    def test_methods_take_the_named_arguments(self, name: str) -> None:
        cls = getattr(rlox, name)
        assert "n_gradient_steps" in inspect.signature(cls.train).parameters
        assert "obs" in inspect.signature(cls.predict).parameters

    def test_it_is_the_algorithm_of_sharpwave(self, name: str, tmp_path: Path) -> None:
        ours = getattr(sw, name)
        assert issubclass(getattr(rlox, name), ours)
        algo = made(name, hidden=8)
        algo.save(tmp_path / "a")
        obs = np.ones((3, OBS), np.float32)
        loaded = ours.from_checkpoint(tmp_path / "a")
        np.testing.assert_array_equal(loaded.predict(obs), algo.predict(obs))
        loaded.save(tmp_path / "b")
        again = getattr(rlox, name).from_checkpoint(tmp_path / "b")
        np.testing.assert_array_equal(again.predict(obs), algo.predict(obs))

    def test_one_width_stands_for_two_layers(self, name: str) -> None:
        assert made(name).config.hidden == (256, 256)

    def test_learns_from_whatever_can_be_sampled(self, name: str) -> None:
        class Mine:
            def sample(self, batch_size: int, seed: int) -> dict[str, Array]:
                generator = np.random.default_rng(seed)
                return {
                    "obs": generator.normal(size=(batch_size, OBS)).astype(np.float32),
                    "next_obs": generator.normal(size=(batch_size, OBS)).astype(np.float32),
                    "actions": generator.uniform(-1, 1, (batch_size, ACT)).astype(np.float32),
                    "rewards": generator.normal(size=batch_size).astype(np.float32),
                    "terminated": np.zeros(batch_size, np.float32),
                }

            def __len__(self) -> int:
                return 1000

        assert isinstance(Mine(), rlox.OfflineDataset)
        algo = getattr(rlox, name)(Mine(), OBS, ACT, hidden=8, batch_size=16)
        assert all(np.isfinite(value) for value in algo.train(5).values())


def test_options_by_position() -> None:
    algo: Any = rlox.TD3BC(dataset(), OBS, ACT, 1.5, 8, 1e-3, 0.01, 0.9, 3, 0.1, 0.2, 0.7, 16)
    config = algo.config
    assert (config.alpha, config.hidden, config.learning_rate) == (1.5, (8, 8), 1e-3)
    assert (config.tau, config.gamma, config.policy_delay) == (0.01, 0.9, 3)
    assert (config.target_noise, config.noise_clip, config.batch_size) == (0.1, 0.2, 16)
    np.testing.assert_allclose(algo.action_space.high, 0.7)
    np.testing.assert_allclose(algo.action_space.low, -0.7)


def test_an_option_given_twice_or_too_many_are_refused() -> None:
    with pytest.raises(TypeError, match="continuous"):
        rlox.BC(dataset(), OBS, ACT, True, continuous=True)
    with pytest.raises(TypeError, match="arguments"):
        rlox.BC(dataset(), OBS, ACT, *range(20))


def test_discrete_cloning_predicts_one_action_for_each_observation() -> None:
    generator = np.random.default_rng(0)
    obs = generator.normal(size=(N, OBS)).astype(np.float32)
    actions = (obs[:, 0] > 0).astype(np.float32)
    data = rlox.OfflineDatasetBuffer(obs, obs, actions, np.zeros(N), np.zeros(N), np.zeros(N))
    algo = rlox.BC(data, OBS, 2, continuous=False, hidden=32, learning_rate=1e-2)
    algo.train(100)
    assert type(algo.predict(obs[0])) is int
    assert np.mean(algo.predict(obs) == actions) > 0.9


@pytest.mark.long
def test_a_normalized_dataset_is_normalized_for_prediction_too() -> None:
    generator = np.random.default_rng(0)
    obs = generator.normal(100.0, 5.0, (N, OBS)).astype(np.float32)
    actions = np.tanh((obs[:, :1] - 100) / 5)
    flags = np.zeros(N)
    data = rlox.OfflineDatasetBuffer(obs, obs, actions, flags, flags, flags, normalize=True)
    algo = rlox.BC(data, OBS, 1, hidden=32, learning_rate=1e-2)
    loss = algo.train(300)["loss"]
    error = float(np.mean((algo.predict(obs) - actions) ** 2))
    assert error < 3 * loss + 1e-3
