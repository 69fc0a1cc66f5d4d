"""Actors and critics that look at groups of observations, and normalize them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import sharpwave as sw
from tests.unit.algorithms.test_critic_obs import Privileged
from tests.unit.envs.tensor_envs import Points, RslPoints

GROUPS: dict[str, Any] = {"policy": ["clue"], "critic": ["state", "clue"]}
OPTIONS: dict[str, Any] = {"n_envs": 2, "n_steps": 16, "batch_size": 16, "seed": 0}


class GroupedPoints(Points):
    """Points whose speed only the critic sees, in another unit."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        box = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.single_observation_space = spaces.Dict({"place": box, "speed": box})

    def observe(self, state: torch.Tensor) -> Any:
        return {"place": 100.0 * state[:, :1] + 50.0, "speed": state[:, 1:].clone()}


@pytest.mark.parametrize("name", ["PPO", "A2C"])
def test_groups_may_overlap(name: str) -> None:
    options = {k: v for k, v in OPTIONS.items() if name == "PPO" or k != "batch_size"}
    agent = getattr(sw, name)(Privileged, **options, obs_groups=GROUPS)
    assert agent.backend_reason.startswith("obs_groups is")
    policy = agent.policy
    assert (policy.actor[0].in_features, policy.critic[0].in_features) == (2, 5)
    obs = {"clue": torch.zeros(4, 2), "state": torch.randn(4, 3)}
    features = policy.critic_features(obs)
    torch.testing.assert_close(features, torch.cat((obs["state"], obs["clue"]), 1))
    before = policy.critic[0].weight.clone()
    agent.train(64)
    assert not torch.equal(before, policy.critic[0].weight)
    agent.close()


def test_alike_groups_are_one_network_input() -> None:
    agent = sw.PPO(Privileged, **OPTIONS, obs_groups={"actor": "state"})
    assert agent.config.obs_groups == {"policy": ("state",), "critic": ("state",)}
    assert agent.policy.critic_features is None
    assert agent.policy.actor[0].in_features == 3
    agent.train(32)
    agent.close()


@pytest.mark.parametrize("extra", [{}, {"recurrent": "lstm"}, {"normalize_obs": "policy"}], ids=str)
def test_play_and_checkpoints_do_without_what_only_the_critic_sees(
    extra: dict[str, Any], tmp_path: Path
) -> None:
    agent = sw.PPO(Privileged, **OPTIONS, **extra, obs_groups=GROUPS)
    agent.train(64)
    whole = {"clue": [0.3, -0.2], "state": [0.1, 0.2, 0.3]}
    action = agent.predict(whole)
    assert agent.predict({"clue": [0.3, -0.2]}) == action
    with pytest.raises(ValueError, match="clue"):
        agent.predict({"state": [0.1, 0.2, 0.3]})
    agent.save(tmp_path / "agent")
    loaded = sw.PPO.from_checkpoint(tmp_path / "agent", env=Privileged)
    assert loaded.config == agent.config
    for mine, theirs in zip(
        loaded.policy.state_dict().values(), agent.policy.state_dict().values(), strict=True
    ):
        assert torch.equal(mine, theirs)
    for one in (agent, loaded):
        one.close()


@pytest.mark.parametrize("groups", [GROUPS, None], ids=["groups", "critic_obs"])
def test_the_policy_alone_is_exported(groups: Any, tmp_path: Path) -> None:
    given = {"critic_obs": "state"} if groups is None else {"obs_groups": groups}
    agent = sw.PPO(Privileged, **OPTIONS, **given, normalize_obs="policy")
    agent.train(64)
    agent.export(tmp_path / "policy.npz")
    with np.load(tmp_path / "policy.npz") as file:
        assert len(file["mean"]) == 2
        np.testing.assert_allclose(file["mean"], agent.policy.features.norm.mean)
        assert file["mean"].any()
    agent.close()


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"critic": ["state"]}, "obs_groups must name policy and critic, got"),
        ({"policy": ["clue"], "rnd": ["clue"]}, "obs_groups must name policy and critic, got"),
        ({"policy": []}, "obs_groups.'policy'. must be different keys"),
        ({"policy": ["clue", "clue"]}, "obs_groups.'policy'. must be different keys"),
        ({"policy": ["clue"], "critic": ["stat"]}, "keys of a Dict observation, got 'stat'"),
        (["clue"], "obs_groups must be keys by group"),
    ],
)
def test_groups_that_do_not_exist_are_named(groups: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        sw.PPO(Privileged, obs_groups=groups)


def test_two_ways_to_say_it_are_refused() -> None:
    with pytest.raises(ValueError, match="critic_obs must be None where obs_groups"):
        sw.PPOConfig(critic_obs="state", obs_groups=GROUPS)
    with pytest.raises(ValueError, match="obs_groups must be None: critic_input says"):
        sw.MAPPOConfig(obs_groups=GROUPS)


class TestNormalization:
    def test_that_of_tensors_is_the_policys_and_stays_on_the_device(self) -> None:
        env = GroupedPoints(8)
        groups = {"policy": ["place"], "critic": ["place", "speed"]}
        agent = sw.PPO(
            env, n_steps=16, batch_size=64, seed=0, backend="torch", normalize_obs=True,
            obs_groups=groups,
        )  # fmt: skip
        assert agent.config.normalize_obs == "policy"
        assert agent.normalizer is None
        assert type(agent.loop.collector).__name__ == "TensorCollector"
        batch = agent.loop.collect()
        seen = batch.obs["place"].double().reshape(16, 8, 1)
        agent.learner.update(batch)
        norm = agent.policy.features.norm
        torch.testing.assert_close(norm.mean, seen.mean((0, 1)), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(norm.var, seen.var((0, 1), correction=0), rtol=1e-5, atol=1e-5)
        assert agent.policy.critic_features.norm.mean.shape == (2,)

    def test_statistics_change_by_updates_alone(self) -> None:
        agent = sw.PPO("CartPole-v1", **OPTIONS, normalize_obs="policy")
        assert agent.backend_reason == "normalize_obs is 'policy'"
        agent.train(32)
        norm = agent.policy.features.norm
        before = norm.mean.clone()
        agent.evaluate(2)
        agent.predict(np.ones(4), deterministic=False)
        agent.loop.collect()
        assert torch.equal(norm.mean, before)
        assert norm.n == 32

    def test_old_log_probabilities_are_those_of_the_policy(self) -> None:
        """No gradient step has been taken yet, so nothing has moved."""
        agent = sw.PPO("CartPole-v1", **OPTIONS, normalize_obs="policy")
        agent.train(32)
        batch = agent.loop.collect()
        evaluated = agent.policy.evaluate(batch.obs, batch.actions)
        torch.testing.assert_close(evaluated.log_probs, batch.log_probs)

    def test_a_run_goes_on_bit_for_bit(self, tmp_path: Path) -> None:
        env = "CartPole-v1"
        whole, first = (sw.A2C(env, n_envs=2, seed=0, normalize_obs="policy") for _ in range(2))
        whole.train(200)
        first.train(100)
        first.save(tmp_path / "a")
        again = sw.A2C.from_checkpoint(tmp_path / "a")
        again.train(100)
        norms = [x.policy.features.norm for x in (whole, again)]
        assert torch.equal(norms[0].mean, norms[1].mean)
        assert torch.equal(whole.flat.data, again.flat.data)

    def test_a_policy_of_ones_own_normalizes_for_itself(self) -> None:
        policy = sw.nn.DiscretePolicy(4, 2, seed=0)
        with pytest.raises(ValueError, match="normalize_obs must be False with a policy"):
            sw.PPO("CartPole-v1", policy=policy, normalize_obs="policy")

    def test_numbers_of_any_scale_are_learned_from(self) -> None:
        class Large(gym.ObservationWrapper[Any, Any, Any]):
            def __init__(self) -> None:
                super().__init__(gym.make("CartPole-v1"))
                self.observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)

            def observation(self, observation: Any) -> Any:
                return (1e3 * observation + 500).astype(np.float32)

        agent = sw.PPO(Large, n_envs=8, n_steps=64, normalize_obs="policy", seed=0)
        agent.train(512)
        norm = agent.policy.features.norm
        batch = agent.loop.collect()
        normalized = agent.policy.features(batch.obs)
        assert normalized.abs().mean() < 3
        assert norm.mean.abs().min() > 300
        agent.close()


class TestRslRl:
    def test_their_environments_train_with_their_options(self) -> None:
        groups = {"policy": ["policy"], "critic": ["policy", "critic"]}
        options: dict[str, Any] = {
            "num_steps_per_env": 24,
            "num_mini_batches": 4,
            "learning_rate": "adaptive",
            "activation": "elu",
            "init_noise_std": 1.0,
            "normalize_obs": True,
        }
        agent = sw.PPO(RslPoints(8), obs_groups=groups, seed=0, backend="torch", **options)
        assert (agent.policy.actor[0].in_features, agent.policy.critic[0].in_features) == (1, 3)
        metrics = agent.train(8 * 24 * 4)
        assert np.isfinite(metrics["loss"])
        assert metrics["learning_rate"] != pytest.approx(1e-3)
        assert agent.episodes.returns

    def test_a_limit_of_time_is_worth_the_value_of_the_observation_before(self) -> None:
        """A step of reward r at the limit has the return r + γ V(s), of s that was acted on."""
        agent = sw.PPO(RslPoints(8), n_steps=64, seed=0, backend="torch", gae_lambda=0.0)
        agent.loop.collect()
        buffer = agent.loop.collector.buffer
        cut = buffer.stored("truncated") != 0
        assert cut.any()
        values, rewards = buffer.stored("value"), buffer.stored("reward")
        expected = rewards + agent.config.gamma * values
        torch.testing.assert_close(buffer.returns[cut], expected[cut], rtol=1e-4, atol=1e-5)
