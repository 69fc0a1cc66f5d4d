"""Configurations of rsl_rl, read as options."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sharpwave.compat.rsl_rl.runners import DistillationRunner, OnPolicyRunner
from sharpwave.compat.rsl_rl.settings import read_settings
from tests.unit.compat.rsl_rl.robots import config, env_for


@pytest.mark.parametrize("form", [2, 3, 4, 5])
def test_all_forms_say_the_same(form: int) -> None:
    agent = OnPolicyRunner(env_for(form), config(form)).agent
    options = agent.config
    assert (options.n_steps, options.n_epochs, options.minibatch) == (8, 5, 64)
    assert (options.gamma, options.gae_lambda, options.clip_eps) == (0.9, 0.95, 0.2)
    assert (options.vf_coef, options.ent_coef, options.max_grad_norm) == (2.0, 0.0, 1.0)
    assert (options.clip_vloss, options.anneal_lr, options.seed) == (True, False, 1)
    assert str(options.learning_rate) == "adaptive"
    assert options.desired_kl == 0.01
    policy = agent.policy
    assert [layer.out_features for layer in policy.actor[::2]] == [16, 8, 2]
    assert [layer.out_features for layer in policy.critic[::2]] == [16, 16, 1]
    assert type(policy.actor[1]).__name__ == "ELU"
    assert policy.spread.tolist() == [0.5, 0.5]
    assert policy.std is not None
    assert policy.features.norm is not None
    assert policy.critic_features.norm is not None


@pytest.mark.parametrize("form", [2, 3])
def test_what_is_not_given_is_as_in_that_version(form: int) -> None:
    given = config(form)
    given["algorithm"] = {"class_name": "PPO"}
    options = OnPolicyRunner(env_for(form), given).agent.config
    wanted = {2: (1, 256, 0.998, 0.0, "0.001"), 3: (5, 64, 0.99, 0.01, "adaptive")}[form]
    found = options.n_epochs, options.minibatch, options.gamma, options.ent_coef
    assert (*found, str(options.learning_rate)) == wanted


def test_a_fixed_rate_and_the_logarithm_of_the_spread() -> None:
    given = config(3, algorithm={"schedule": "fixed", "learning_rate": 5e-4})
    given["policy"]["noise_std_type"] = "log"
    agent = OnPolicyRunner(env_for(3), given).agent
    assert agent.config.learning_rate == 5e-4
    assert agent.policy.log_std is not None
    assert agent.policy.spread.tolist() == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("elu", "ELU"),
        ("selu", "SELU"),
        ("relu", "ReLU"),
        ("lrelu", "LeakyReLU"),
        ("tanh", "Tanh"),
        ("gelu", "GELU"),
        ("swish", "SiLU"),
        ("crelu", "ELU"),
    ],
)
def test_activations(name: str, here: str) -> None:
    given = config(3)
    given["policy"]["activation"] = name
    actor = OnPolicyRunner(env_for(3), given).agent.policy.actor
    assert type(actor[1]).__name__ == here


def test_groups_are_side_by_side_in_their_order() -> None:
    env = env_for(5)
    groups = {"actor": ["policy", "critic"], "critic": ["critic", "policy"]}
    policy = OnPolicyRunner(env, config(5, obs_groups=groups)).agent.policy
    obs = dict(env.get_observations().items())
    assert policy.features.joined(obs)[0].tolist() == [*obs["policy"][0], *obs["critic"][0]]
    assert policy.critic_features.joined(obs)[0].tolist() == [*obs["critic"][0], *obs["policy"][0]]


def test_sets_that_are_not_given_are_groups_of_their_name() -> None:
    policy = OnPolicyRunner(env_for(5), config(5, obs_groups={})).agent.policy
    assert (policy.features.names, policy.critic_features.names) == (["policy"], ["critic"])


def test_entries_that_were_never_set_are_left_out() -> None:
    given = config(5, policy=dataclasses.MISSING, empirical_normalization=dataclasses.MISSING)
    given["actor"]["stochastic"] = given["actor"]["init_noise_std"] = dataclasses.MISSING
    assert read_settings(given).form == 5


def test_widths_may_be_those_of_the_inputs() -> None:
    given = config(5)
    given["actor"]["hidden_dims"] = [-1, 4]
    actor = OnPolicyRunner(env_for(5), given).agent.policy.actor
    assert [layer.out_features for layer in actor[::2]] == [2, 4, 2]


def changed(form: int, **changes: Any) -> dict[str, Any]:
    """A configuration with some entries of its parts changed."""
    given = config(form)
    for name, value in changes.items():
        if isinstance(value, dict) and isinstance(given.get(name), dict):
            given[name] = {**given[name], **value}
        else:
            given[name] = value
    return given


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (changed(3, num_step_per_env=3), "train_cfg has no entry 'num_step_per_env'.*'num_steps_"),
        (changed(3, algorithm={"entropy": 1}), "algorithm has no entry 'entropy'.*'entropy_coef'"),
        (changed(3, policy={"init_std": 1}), "policy has no entry 'init_std'.*'init_noise_std'"),
        (changed(5, actor={"hidden_dim": [3]}), "actor has no entry 'hidden_dim'.*'hidden_dims'"),
        (
            changed(5, actor={"distribution_cfg": {"init_noise_std": 1.0}}),
            "actor.distribution_cfg has no entry 'init_noise_std'",
        ),
        (changed(3, algorithm={"optimizer": "sgd"}), "optimizer must be 'adam' here, got 'sgd'"),
        (changed(3, algorithm={"schedule": "cosine"}), "schedule must be 'adaptive' or 'fixed'"),
        (changed(3, algorithm={"class_name": "TRPO"}), "algorithm.class_name must be 'PPO' or"),
        (changed(3, algorithm={"use_mixed_precision": True}), "use_mixed_precision must be False"),
        (changed(3, policy={"activation": "mish"}), "policy.activation must be one of"),
        (changed(3, policy={"noise_std_type": "exp"}), "noise_std_type must be 'scalar' or 'log'"),
        (changed(3, policy={"state_dependent_std": True}), "state_dependent_std must be False"),
        (changed(3, policy={"class_name": "Mine"}), "policy.class_name must be 'ActorCritic' or"),
        (changed(5, actor={"class_name": "CNNModel"}), "actor.class_name must be 'MLPModel' or"),
        (changed(5, critic={"activation": "relu"}), "critic.activation must be that of the actor"),
        (changed(5, actor={"distribution_cfg": None}), "actor must have a distribution_cfg"),
        (changed(3, logger="neptune"), "logger must be 'tensorboard' or a dict such as"),
        (changed(5, torch_compile_mode="max-autotune"), "torch_compile_mode must be None or"),
        (changed(3, obs_groups={"policy": ["eyes"]}), r"obs_groups\['actor'\] must be some of"),
        (changed(3, obs_groups={"critic": []}), r"obs_groups\['critic'\] must be at least one of"),
        (changed(3, policy=None), "train_cfg must have an entry 'policy', or 'actor' and 'critic'"),
    ],
)
def test_what_is_not_here_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){message}.*coming_from_rsl_rl|{message}"):
        OnPolicyRunner(env_for(3), given)


def test_what_is_missing_is_named() -> None:
    given = config(3)
    del given["num_steps_per_env"]
    with pytest.raises(ValueError, match="train_cfg must have an entry 'num_steps_per_env'"):
        OnPolicyRunner(env_for(3), given)


def test_the_configuration_is_not_changed() -> None:
    given, before = config(3), config(3)
    OnPolicyRunner(env_for(3), given)
    assert given == before


def test_a_distillation_must_be_one() -> None:
    with pytest.raises(ValueError, match=r"algorithm\.class_name must be 'Distillation' here"):
        DistillationRunner(env_for(3), config(3))
