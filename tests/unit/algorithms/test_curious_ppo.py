"""PPO with random network distillation, held to NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import sharpwave as sw
from sharpwave.nn import ReturnScale
from tests.unit.envs.tensor_envs import Points

SMALL: dict[str, Any] = {"n_steps": 16, "batch_size": 32, "n_epochs": 2, "hidden": 8, "seed": 3}


class Explorer(sw.CuriousPPOLearner):
    curiosity = sw.Curiosity(
        weight=0.5, size=3, predictor_hidden=(8,), normalize_obs=True, normalize_rewards=True
    )


class Plain(sw.CuriousPPOLearner):
    curiosity = sw.Curiosity(weight=sw.Linear(1.0, 0.0), size=3)


def test_rewards_are_scaled_by_their_discounted_sums() -> None:
    rewards = np.random.default_rng(0).random((6, 5)).astype(np.float32)
    scale, sums, seen = ReturnScale(0.9), np.zeros(5, np.float32), []
    for row in rewards:
        sums = 0.9 * sums + row
        seen.append(sums)
        expected = row / np.concatenate(seen).std()
        np.testing.assert_allclose(scale(torch.from_numpy(row)), expected, rtol=1e-4)


def test_rewards_that_are_all_alike_stay_as_they_are() -> None:
    assert ReturnScale()(torch.full((3,), 2.0)).tolist() == [2.0] * 3


def test_the_rewards_are_distances_of_the_two_networks() -> None:
    agent = sw.PPO(Points(4), learner=Plain, **SMALL)
    learner: Any = agent.learner
    obs = torch.randn(4, 2)
    learner.follow(0.25)
    distance = (learner.predictor(obs) - learner.unknown.network(obs)).square().sum(1).sqrt()
    assert torch.allclose(learner.intrinsic_rewards(obs), 0.25 * distance)


class WithoutRewards(Points):
    def step(self, actions: Any) -> Any:
        obs, rewards, *rest = super().step(actions)
        return obs, torch.zeros_like(rewards), *rest


def test_they_are_what_is_learned_from_and_not_what_is_reported() -> None:
    agent = sw.PPO(WithoutRewards(4), learner=Plain, **SMALL)
    metrics = agent.train(256)
    assert metrics["mean_return"] == 0.0
    assert metrics["mean_intrinsic_return"] > 0
    learned = sw.PPO(WithoutRewards(4), **SMALL, backend="torch").train(256)
    assert abs(learned["value_loss"]) < metrics["value_loss"]


def test_what_was_often_seen_is_not_new_any_more() -> None:
    agent = sw.PPO(Points(8), learner=Plain, **SMALL)
    learner: Any = agent.learner
    seen = torch.rand(64, 2) * 2 - 1
    before = learner.intrinsic_rewards(seen).mean()
    agent.train(16 * 8 * 40)
    learner.follow(1.0)
    assert learner.intrinsic_rewards(seen).mean() < 0.5 * before


def test_the_weight_follows_its_schedule() -> None:
    agent = sw.PPO(Points(4), learner=Plain, **SMALL)
    assert agent.train(256)["curiosity_weight"] == pytest.approx(1 - 192 / 256)


def test_environments_of_arrays_too() -> None:
    metrics = sw.PPO("CartPole-v1", n_envs=4, learner=Explorer, **SMALL).train(512)
    assert metrics["mean_intrinsic_return"] > 0


def test_a_run_continues_as_it_would_have(tmp_path: Any) -> None:
    options = {**SMALL, "anneal_lr": False}
    whole, half = (sw.PPO(Points(4), learner=Explorer, **options) for _ in range(2))
    half.train(128)
    half.save(tmp_path / "half.safetensors")
    again = sw.PPO.from_checkpoint(tmp_path / "half.safetensors", Points(4), learner=Explorer)
    metrics, expected = again.train(128), (whole.train(128), whole.train(128))[1]
    assert again.timesteps == whole.timesteps == 256
    for name in ("mean_intrinsic_return", "curiosity_loss", "policy_loss"):
        assert metrics[name] == expected[name]
    for name, network in whole.learner.networks.items():
        for key, weights in network.state_dict().items():
            assert torch.equal(again.learner.networks[name].state_dict()[key], weights), key


def test_entries_that_are_not_there_are_named() -> None:
    class Wrong(sw.CuriousPPOLearner):
        curiosity = sw.Curiosity(obs=("rnd_state",))

    with pytest.raises(ValueError, match="obs of Curiosity must be entries of Box"):
        sw.PPO(Points(4), learner=Wrong, **SMALL)


def test_it_may_look_at_a_part_of_the_observation() -> None:
    class Named(Points):
        def __init__(self, n: int) -> None:
            super().__init__(n)
            box = self.single_observation_space
            self.single_observation_space = spaces.Dict({"state": box, "place": box})

        def observe(self, state: Any) -> Any:
            return {"state": state.clone(), "place": 2 * state}

    class Place(sw.CuriousPPOLearner):
        curiosity = sw.Curiosity(obs=("place",))

    learner: Any = sw.PPO(Named(4), learner=Place, **SMALL).learner
    obs = {"state": torch.randn(3, 2), "place": torch.randn(3, 2)}
    assert torch.equal(learner.unknown(obs)[0], obs["place"])
