"""Programs for rlox's algorithms that learn from replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import sharpwave as sw
import sharpwave.compat.rlox as rlox
from sharpwave.types import Array

SMALL: dict[str, Any] = {"hidden": 8, "batch_size": 8, "learning_starts": 20, "buffer_size": 500}
ENVS = {"SAC": "Pendulum-v1", "TD3": "Pendulum-v1", "DQN": "CartPole-v1"}
METRICS = {
    "SAC": {"critic_loss", "actor_loss", "alpha", "alpha_loss", "mean_reward"},
    "TD3": {"critic_loss", "actor_loss", "mean_reward"},
    "DQN": {"loss", "mean_reward"},
}


def made(name: str, **options: Any) -> Any:
    return getattr(rlox, name)(ENVS[name], **{**SMALL, **options})


@pytest.mark.parametrize("name", ENVS)
class TestEvery:
    def test_trains_and_returns_the_documented_metrics(self, name: str) -> None:
        metrics = made(name).train(total_timesteps=40)
        assert METRICS[name] <= metrics.keys()
        assert all(np.isfinite(metrics[key]) for key in METRICS[name] - {"mean_reward"})

    def test_the_trainer_makes_it_by_name(self, name: str) -> None:
        trainer = rlox.Trainer(name.lower(), ENVS[name], config=SMALL)
        assert isinstance(trainer.algo, rlox.ALGORITHM_REGISTRY[name.lower()])
        assert METRICS[name] <= trainer.train(total_timesteps=30).keys()

    def test_checkpoints_load_in_the_class_of_sharpwave_and_back(
        self, name: str, tmp_path: Path
    ) -> None:
        algo = made(name)
        algo.train(30)
        algo.save(tmp_path / "a")
        obs = algo.observation_space.sample()
        loaded = getattr(sw, name).from_checkpoint(tmp_path / "a")
        np.testing.assert_array_equal(loaded.predict(obs), algo.predict(obs))
        loaded.save(tmp_path / "b")
        again = getattr(rlox, name).from_checkpoint(tmp_path / "b")
        np.testing.assert_array_equal(again.predict(obs), algo.predict(obs))

    def test_one_width_stands_for_two_layers(self, name: str) -> None:
        assert getattr(rlox, name)(ENVS[name]).config.hidden == (256, 256)

    def test_takes_an_environment_itself(self, name: str) -> None:
        algo = getattr(rlox, name)(gymnasium.make(ENVS[name]), **SMALL)
        assert algo.train(25)["timesteps"] == 25

    def test_takes_a_buffer_that_is_not_ours(self, name: str) -> None:
        buffer = ListBuffer()
        made(name, buffer=buffer).train(30)
        assert len(buffer) == 30

    def test_a_collector_too_many_and_twice_are_refused(self, name: str) -> None:
        cls = getattr(rlox, name)
        with pytest.raises(TypeError, match="collector must be None"):
            cls(ENVS[name], collector=object())
        with pytest.raises(TypeError, match="by position, got 41"):
            cls(ENVS[name], *range(40))
        with pytest.raises(TypeError, match="'buffer_size' twice"):
            cls(ENVS[name], 100, buffer_size=100)


class ListBuffer:
    """The protocol of rlox's buffers, as plainly as it can be."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def push(
        self, obs: Any, action: Any, reward: Any, terminated: Any, truncated: Any, next_obs: Any
    ) -> None:
        self.rows.append((obs, action, reward, terminated, truncated, next_obs))

    def sample(self, batch_size: int, seed: int) -> dict[str, Array]:
        chosen = np.random.default_rng(seed).integers(len(self.rows), size=batch_size)
        names = ("obs", "actions", "rewards", "terminated", "truncated", "next_obs")
        columns = zip(*(self.rows[index] for index in chosen), strict=True)
        return {name: np.array(column) for name, column in zip(names, columns, strict=True)}

    def __len__(self) -> int:
        return len(self.rows)


def test_options_by_position() -> None:
    sac = rlox.SAC("Pendulum-v1", 99, 1e-3, 7, 0.01, 0.9, 11, 8, 2, 3, 0.25, 5, False, -2.0)
    config = sac.config
    assert (config.buffer_size, config.learning_rate, config.batch_size) == (99, 1e-3, 7)
    assert (config.tau, config.gamma, config.learning_starts) == (0.01, 0.9, 11)
    assert (config.hidden, config.train_freq, config.gradient_steps) == ((8, 8), 2, 3)
    assert (config.ent_coef, config.seed) == (0.25, 5)

    td3 = rlox.TD3("Pendulum-v1", 99, 1e-3, 7, 0.01, 0.9, 11, 8, 5, 3, 0.1, 0.4, 0.3, 2, 4).config
    assert (td3.seed, td3.policy_delay, td3.target_noise, td3.noise_clip) == (5, 3, 0.1, 0.4)
    assert (td3.exploration_noise, td3.train_freq, td3.gradient_steps) == (0.3, 2, 4)

    dqn = rlox.DQN(
        "CartPole-v1", 99, 1e-3, 7, 0.9, 50, 0.2, 0.8, 0.1, 11, False, True, 3, True, 0.5, 0.3, 8
    ).config
    assert (dqn.target_update_freq, dqn.exploration_fraction) == (50, 0.2)
    assert (dqn.exploration_initial_eps, dqn.exploration_final_eps) == (0.8, 0.1)
    assert (dqn.double_dqn, dqn.dueling, dqn.n_step, dqn.prioritized) == (False, True, 3, True)
    assert (dqn.alpha, dqn.beta_start, dqn.hidden) == (0.5, 0.3, (8, 8))


def test_other_names_of_the_noise_on_targets() -> None:
    config = rlox.TD3("Pendulum-v1", target_policy_noise=0.3, target_noise_clip=0.7).config
    assert (config.target_noise, config.noise_clip) == (0.3, 0.7)


def test_entropy_that_is_not_adjusted_stays() -> None:
    algo = made("SAC", ent_coef=0.2)
    algo.train(40)
    assert algo.train(45)["alpha"] == pytest.approx(0.2)


def test_same_seed_same_run() -> None:
    """The original ignores the seed here."""
    runs = [made("SAC", seed=seed).train(60)["critic_loss"] for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_predictions_of_one_and_of_many() -> None:
    dqn, sac = made("DQN"), made("SAC")
    assert isinstance(dqn.predict(np.zeros(4, np.float32)), int)
    assert dqn.predict(np.zeros((3, 4), np.float32)).shape == (3,)
    assert sac.predict(np.zeros(3, np.float32)).shape == (1,)
    assert sac.predict(np.zeros((5, 3), np.float32)).shape == (5, 1)


class Actor(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean = torch.nn.Linear(3, 1)

    def sample(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        distribution = torch.distributions.Normal(self.mean(obs), 1.0)
        raw = distribution.rsample()
        action = torch.tanh(raw)
        log_prob = distribution.log_prob(raw) - torch.log1p(-action.pow(2) + 1e-6)
        return action, log_prob.sum(-1, keepdim=True)

    def deterministic(self, obs: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.mean(obs))


class Critic(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.value = torch.nn.Linear(4, 1)

    def forward(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.value(torch.cat([obs, action], -1)))


@pytest.mark.long
def test_networks_of_the_users_own_learn() -> None:
    actor, q_network = Actor(), torch.nn.Linear(4, 2)
    before = [one.detach().clone() for one in (actor.mean.weight, q_network.weight)]
    sac = made("SAC", actor=actor, critic=Critic())
    assert METRICS["SAC"] <= sac.train(60).keys()
    dqn = made("DQN", q_network=q_network)
    dqn.train(60)
    for old, network in zip(before, (sac.policy, dqn.policy), strict=True):
        assert not any(torch.equal(old, new) for new in network.parameters())
