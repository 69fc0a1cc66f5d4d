"""Constructors have SB3's names, positions and defaults."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

import sharpwave.compat.sb3 as ours
from sharpwave.compat.sb3 import PPO, SAC

BASE = ("PPO", "A2C", "DQN", "SAC", "TD3", "DDPG")
CONTRIB = ("TQC", "QRDQN", "CrossQ", "RecurrentPPO", "MaskablePPO")
METHODS = ("learn", "predict", "save", "load", "set_env", "set_parameters", "set_logger")


def parameters(function: Any) -> list[tuple[str, Any]]:
    found = inspect.signature(function).parameters.values()
    return [(one.name, one.default) for one in found if one.name != "self"]


def their_class(name: str) -> Any:
    library = "stable_baselines3" if name in BASE else "sb3_contrib"
    return getattr(pytest.importorskip(library), name)


@pytest.mark.parametrize("name", [*BASE, *CONTRIB])
def test_arguments_are_sb3s(name: str) -> None:
    theirs = their_class(name)
    assert parameters(getattr(ours, name)) == parameters(theirs)


@pytest.mark.parametrize("name", [*BASE, *CONTRIB])
@pytest.mark.parametrize("method", METHODS)
def test_methods_take_what_sb3s_take(name: str, method: str) -> None:
    theirs = parameters(getattr(their_class(name), method))
    own = parameters(getattr(getattr(ours, name), method))
    assert [one for one, _ in own][: len(theirs)] == [one for one, _ in theirs]


@pytest.mark.parametrize("name", [*BASE, *CONTRIB])
def test_logs_come_as_often_as_sb3s(name: str) -> None:
    defaults = dict(parameters(their_class(name).learn))
    assert getattr(ours, name).log_interval == defaults["log_interval"]


def test_arguments_by_position() -> None:
    model = PPO("MlpPolicy", "CartPole-v1", 1e-3, 64, 32)
    assert (model.learning_rate, model.n_steps, model.batch_size) == (1e-3, 64, 32)
    assert model.agent.config.learning_rate == 1e-3


def test_an_unknown_argument_names_the_nearest() -> None:
    with pytest.raises(TypeError, match=r"n_step.*did you mean 'n_steps'.*coming_from_sb3"):
        PPO("MlpPolicy", "CartPole-v1", n_step=64)


def test_arguments_are_read_once() -> None:
    model = PPO("MlpPolicy", "CartPole-v1")
    with pytest.raises(AttributeError, match="gamma was read by the constructor"):
        model.gamma = 0.5
    model.verbose = 1
    assert model.verbose == 1


def test_values_mean_what_they_mean_in_sb3() -> None:
    config = PPO("MlpPolicy", "CartPole-v1", vf_coef=0.5).agent.config
    assert config.vf_coef == 1.0  # the loss of values has a half here
    assert config.anneal_lr is False
    assert config.n_envs == 1
    config = ours.DQN("MlpPolicy", "CartPole-v1").agent.config
    assert (config.double_dqn, config.hidden) == (False, (64, 64))
    config = ours.TD3("MlpPolicy", "Pendulum-v1").agent.config
    assert (config.exploration_noise, config.hidden) == (0.0, (400, 300))
    config = ours.DDPG("MlpPolicy", "Pendulum-v1").agent.config
    assert (config.n_critics, config.policy_delay, config.target_noise) == (1, 1, 0.0)
    config = SAC("MlpPolicy", "Pendulum-v1", target_entropy=-3.0, ent_coef="auto_0.1").agent.config
    assert (config.target_entropy, config.first_alpha) == (-3.0, 0.1)
    config = ours.QRDQN("MlpPolicy", "CartPole-v1", batch_size=50).agent.config
    assert config.adam_eps == pytest.approx(0.0002)


REFUSED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "rollout_buffer_class": ("PPO", "CartPole-v1", {"rollout_buffer_class": object}),
    "action_noise": ("SAC", "Pendulum-v1", {"action_noise": object()}),
    "noise of another kind": ("TD3", "Pendulum-v1", {"action_noise": object()}),
    "use_sde_at_warmup": ("SAC", "Pendulum-v1", {"use_sde_at_warmup": True}),
    "activation_fn": (
        "PPO",
        "CartPole-v1",
        {"policy_kwargs": {"activation_fn": type("Mish", (), {})}},
    ),
    "full_std": ("PPO", "CartPole-v1", {"policy_kwargs": {"full_std": False}}),
    "share_features_extractor": (
        "PPO",
        "CartPole-v1",
        {"policy_kwargs": {"share_features_extractor": False, "features_extractor_class": dict}},
    ),
    "net_arch": ("PPO", "CartPole-v1", {"policy_kwargs": {"net_arch": [64, {"pi": [8]}]}}),
    "features_extractor_kwargs": (
        "PPO",
        "CartPole-v1",
        {"policy_kwargs": {"features_extractor_kwargs": {"features_dim": 3}}},
    ),
    "lr": ("PPO", "CartPole-v1", {"policy_kwargs": {"optimizer_kwargs": {"lr": 1e-3}}}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_counterpart_is_refused_by_name(name: str) -> None:
    algorithm, env_id, options = REFUSED[name]
    said = "action_noise" if "noise" in name else name
    with pytest.raises(ValueError, match=rf"{said}.*docs/coming_from_sb3\.md"):
        getattr(ours, algorithm)("MlpPolicy", env_id, **options)


def test_policies_are_checked() -> None:
    with pytest.raises(ValueError, match="one of MultiInputPolicy, MlpPolicy, CnnPolicy"):
        PPO("MlpLstmPolicy", "CartPole-v1")
    with pytest.raises(ValueError, match="must not be a Cnn one"):
        PPO("CnnPolicy", "CartPole-v1")
    with pytest.raises(ValueError, match="of another kind"):
        PPO("MultiInputPolicy", "CartPole-v1")
    with pytest.raises(TypeError, match="features_extractor_class"):
        PPO(type("MyPolicy", (), {}), "CartPole-v1")
    with pytest.raises(TypeError, match=r"policy_kwargs has no 'net_arc'.*'net_arch'"):
        PPO("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arc": [8]})
    policies = importlib.import_module("stable_baselines3.ppo")
    assert PPO(policies.MlpPolicy, "CartPole-v1").agent.config.hidden == (64, 64)


def test_names_that_are_not_here_say_why() -> None:
    with pytest.raises(AttributeError, match="her_goals"):
        _ = ours.HerReplayBuffer
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = ours.Nothing
