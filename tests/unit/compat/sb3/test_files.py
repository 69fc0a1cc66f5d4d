"""Models are saved, loaded and gone on with."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

import sharpwave as sw
from sharpwave.compat.sb3 import A2C, DDPG, DQN, PPO, SAC, TD3, RecurrentPPO

SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}, "batch_size": 16}
MODELS: dict[str, tuple[Any, str, str, dict[str, Any]]] = {
    "ppo": (PPO, "MlpPolicy", "CartPole-v1", {"n_steps": 32}),
    "a2c": (A2C, "MlpPolicy", "CartPole-v1", {}),
    "dqn": (DQN, "MlpPolicy", "CartPole-v1", {"learning_starts": 20}),
    "sac": (SAC, "MlpPolicy", "Pendulum-v1", {"learning_starts": 20, **SMALL}),
    "td3": (TD3, "MlpPolicy", "Pendulum-v1", {"learning_starts": 20, **SMALL}),
    "ddpg": (DDPG, "MlpPolicy", "Pendulum-v1", {"learning_starts": 20, **SMALL}),
    "recurrent": (
        RecurrentPPO,
        "MlpLstmPolicy",
        "CartPole-v1",
        {"n_steps": 32, "policy_kwargs": {"lstm_hidden_size": 8}},
    ),
}


def model_of(name: str, steps: int = 64) -> Any:
    kind, policy, env_id, options = MODELS[name]
    return kind(policy, env_id, seed=1, **options).learn(steps)


def observations(model: Any, n: int = 5) -> Any:
    model.observation_space.seed(0)
    return np.stack([np.clip(model.observation_space.sample(), -3, 3) for _ in range(n)])


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_acts_the_same(name: str, tmp_path: Path) -> None:
    model = model_of(name)
    model.save(tmp_path / "model")
    assert (tmp_path / "model.zip").is_file()
    loaded = type(model).load(tmp_path / "model")
    obs = observations(model)
    assert np.array_equal(
        model.predict(obs, deterministic=True)[0], loaded.predict(obs, deterministic=True)[0]
    )
    assert loaded.num_timesteps == model.num_timesteps
    for argument in ("learning_rate", "gamma", "policy_kwargs", "seed"):
        assert getattr(loaded, argument) == getattr(model, argument)


@pytest.mark.parametrize("name", ["ppo", "a2c"])
def test_a_loaded_model_goes_on_bit_for_bit(name: str, tmp_path: Path) -> None:
    model = model_of(name)
    model.save(tmp_path / "model.zip")
    loaded = type(model).load(tmp_path / "model.zip")
    for one in (model, loaded):
        one.learn(64, reset_num_timesteps=False)
    assert loaded.num_timesteps == model.num_timesteps >= 128
    before, after = model.policy.state_dict(), loaded.policy.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_agents_of_this_library_load_it_too(tmp_path: Path) -> None:
    model = model_of("ppo")
    model.save(tmp_path / "model")
    agent = sw.PPO.from_checkpoint(tmp_path / "model.zip")
    obs = observations(model)
    assert np.array_equal(agent.predict(obs), model.predict(obs, deterministic=True)[0])


def test_a_checkpoint_of_an_agent_is_told_apart(tmp_path: Path) -> None:
    sw.PPO("CartPole-v1", n_envs=1).save(tmp_path / "agent.zip")
    with pytest.raises(ValueError, match="load it by from_checkpoint"):
        PPO.load(tmp_path / "agent.zip")


def test_other_environments_and_arguments(tmp_path: Path) -> None:
    model_of("ppo").save(tmp_path / "model")
    env = make_vec_env("CartPole-v1", 2)
    loaded = PPO.load(
        tmp_path / "model", env=env, custom_objects={"learning_rate": 1e-5}, n_steps=8
    )
    assert (loaded.n_envs, loaded.agent.config.learning_rate, loaded.n_steps) == (2, 1e-5, 8)
    assert loaded.get_env() is env
    with pytest.raises(TypeError, match="no 'n_step'"):
        PPO.load(tmp_path / "model", n_step=8)


def test_without_environments_it_predicts(tmp_path: Path) -> None:
    env = make_vec_env("CartPole-v1", 2)
    PPO("MlpPolicy", env, n_steps=8, batch_size=8).learn(16).save(tmp_path / "model")
    loaded = PPO.load(tmp_path / "model")
    assert loaded.get_env() is None
    assert loaded.predict(np.zeros(4))[0].shape == ()
    with pytest.raises(ValueError, match="set_env"):
        loaded.learn(16)
    loaded.set_env(make_vec_env("CartPole-v1", 2))
    assert loaded.learn(16).num_timesteps == 16


def test_open_files(tmp_path: Path) -> None:
    model, file = model_of("ppo"), io.BytesIO()
    model.save(file)
    file.seek(0)
    assert PPO.load(file).num_timesteps == model.num_timesteps
    with pytest.raises(FileNotFoundError):
        PPO.load(tmp_path / "nothing")


def test_the_replay_buffer(tmp_path: Path) -> None:
    model = model_of("sac")
    model.save_replay_buffer(tmp_path / "steps")
    loaded = SAC("MlpPolicy", "Pendulum-v1", **MODELS["sac"][3])
    loaded.load_replay_buffer(tmp_path / "steps")
    assert len(loaded.replay_buffer) == loaded.replay_buffer.size() == 64
    ids = loaded.replay_buffer.indices()
    ours, theirs = (one.replay_buffer.gather(ids) for one in (loaded, model))
    assert np.array_equal(ours["obs"], theirs["obs"])
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="not a replay buffer"):
        loaded.load_replay_buffer(tmp_path / "model.zip")


def test_environments_that_are_set_keep_what_is_stored() -> None:
    model = DQN("MlpPolicy", make_vec_env("CartPole-v1", 2), learning_starts=20).learn(40)
    weights = model.get_parameters()
    other = make_vec_env("CartPole-v1", 2)
    model.set_env(other)
    assert model.get_env() is other
    assert len(model.replay_buffer) == 40
    assert all(torch.equal(x, weights["policy"][k]) for k, x in model.policy.state_dict().items())
    with pytest.raises(ValueError, match="2 environments, got 3"):
        model.set_env(make_vec_env("CartPole-v1", 3))


@pytest.mark.parametrize("name", list(MODELS))
def test_parameters_go_from_model_to_model(name: str) -> None:
    model, (kind, policy, env_id, options) = model_of(name), MODELS[name]
    other = kind(policy, env_id, seed=2, **options)
    other.set_parameters(model.get_parameters())
    obs = observations(model)
    assert np.array_equal(
        model.predict(obs, deterministic=True)[0], other.predict(obs, deterministic=True)[0]
    )
    weights = model.get_parameters()["policy"]
    first = next(iter(weights))
    del weights[first]
    with pytest.raises(ValueError, match=first.replace(".", r"\.")):
        other.set_parameters({"policy": weights})
    other.set_parameters({"policy": weights}, exact_match=False)
    with pytest.raises(ValueError, match="shape"):
        other.policy.load_state_dict({first: torch.zeros(1, 2, 3)}, strict=False)
    with pytest.raises(TypeError, match="actors"):
        other.set_parameters({"actors": {}})


def test_counts_begin_anew_or_go_on() -> None:
    model = model_of("dqn", 200)
    assert model.exploration_rate == pytest.approx(0.05)
    updates = model.agent.learner.updates
    model.learn(40)
    assert model.num_timesteps == 40
    assert model.agent.learner.updates > updates
    model.learn(40, reset_num_timesteps=False)
    assert model.num_timesteps == 80


def test_exploration_begins_anew() -> None:
    model = DQN("MlpPolicy", "CartPole-v1", exploration_fraction=1.0).learn(100)
    assert model.exploration_rate == pytest.approx(0.05)
    rates: list[float] = []

    def look(locals_: dict[str, Any], globals_: dict[str, Any]) -> bool:
        rates.append(locals_["self"].exploration_rate)
        return True

    model.learn(100, callback=look)
    assert rates[0] > 0.9 > 0.1 > rates[-1]


def test_evaluate_policy_plays_models_and_policies() -> None:
    model = PPO("MlpPolicy", "CartPole-v1", seed=0).learn(20_000)
    mean, _ = evaluate_policy(model, model.get_env(), n_eval_episodes=10)
    assert mean > 100
    env = make_vec_env("CartPole-v1", 3)
    returns, lengths = evaluate_policy(model.policy, env, 7, return_episode_rewards=True)
    assert len(returns) == 7
    assert returns == lengths


def test_learning_goes_on_after_its_environments_were_played() -> None:
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=32)
    model.learn(64)
    evaluate_policy(model, model.get_env(), n_eval_episodes=2)
    model.learn(64, reset_num_timesteps=False)
    assert model.num_timesteps == 128


@pytest.mark.long
def test_importing_and_learning_need_no_sb3(tmp_path: Path) -> None:
    program = """
import sys

sys.modules["stable_baselines3"] = None
from sharpwave.compat.sb3 import *  # noqa: F403
from sharpwave.compat.sb3 import DQN, PPO, make_vec_env

import gymnasium as gym

assert "torch" in sys.modules  # for from_sb3, which the star asks for
model = PPO("MlpPolicy", gym.make("CartPole-v1"), n_steps=32, verbose=1).learn(64)
env = model.get_env()
obs = env.reset()
obs, rewards, dones, infos = env.step(model.predict(obs)[0])
assert infos[0]["TimeLimit.truncated"] is False
model.save("plain")
assert PPO.load("plain", env="CartPole-v1").num_timesteps == 64
DQN("MlpPolicy", make_vec_env("CartPole-v1", 2), learning_starts=20).learn(40)
"""
    command = [sys.executable, "-W", "error", "-c", program]
    subprocess.run(command, check=True, timeout=300, cwd=tmp_path)
