"""Constructors and methods have the parameters and defaults that programs for rlox rely on."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from operator import attrgetter
from typing import Any

import pytest

import sharpwave as sw
import sharpwave.compat.rlox as rlox

REQUIRED = inspect.Parameter.empty

COMMON = {"env_id": REQUIRED, "n_envs": 8, "seed": 42}
PARTS = {"policy": None, "logger": None, "callbacks": None, "compile": False}
PPO_OPTIONS = {
    "n_steps": 128,
    "n_epochs": 4,
    "batch_size": 256,
    "learning_rate": 2.5e-4,
    "clip_eps": 0.2,
    "vf_coef": 0.5,
    "ent_coef": 0.01,
    "max_grad_norm": 0.5,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "normalize_advantages": True,
    "clip_vloss": True,
    "anneal_lr": True,
    "normalize_rewards": False,
    "normalize_obs": False,
}
A2C_OPTIONS = {
    "n_steps": 5,
    "learning_rate": 7e-4,
    "gamma": 0.99,
    "gae_lambda": 1.0,
    "vf_coef": 0.5,
    "ent_coef": 0.01,
    "max_grad_norm": 0.5,
    "normalize_advantages": False,
}
OFFLINE = {"dataset": REQUIRED, "obs_dim": REQUIRED, "act_dim": REQUIRED}
LISTENERS = {"callbacks": None, "logger": None}
REPLAY = {"env_id": REQUIRED, "buffer_size": 1_000_000}
ACTOR_CRITIC = {
    **REPLAY,
    "learning_rate": 3e-4,
    "batch_size": 256,
    "tau": 0.005,
    "gamma": 0.99,
    "learning_starts": 1000,
    "hidden": 256,
}
REPLACEABLE = {"actor": None, "critic": None, "buffer": None, "collector": None, "n_envs": 1}
CONSTRUCTORS: dict[str, dict[str, Any]] = {
    "MAPPO": {
        "env_id": REQUIRED,
        "n_agents": 1,
        "n_envs": 4,
        "seed": 42,
        "n_steps": 64,
        "n_epochs": 4,
        "batch_size": 128,
        "learning_rate": 2.5e-4,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "clip_eps": 0.2,
        "vf_coef": 0.5,
        "ent_coef": 0.01,
        "max_grad_norm": 0.5,
        "env_fn": None,
        "logger": None,
        "callbacks": None,
    },
    "algorithms.mappo.MultiAgentCollector": {"env_fn": REQUIRED, "n_envs": 1, "n_agents": 2},
    "IMPALA": {
        "env_id": REQUIRED,
        "n_actors": 2,
        "n_envs": 2,
        "seed": 42,
        "n_steps": 32,
        "learning_rate": 5e-4,
        "gamma": 0.99,
        "rho_bar": 1.0,
        "c_bar": 1.0,
        "vf_coef": 0.5,
        "ent_coef": 0.01,
        "max_grad_norm": 40.0,
        "logger": None,
        "callbacks": None,
        "worker_addresses": None,
    },
    "algorithms.dreamer.DreamerV3": {
        "env_id": REQUIRED,
        "n_envs": 1,
        "seed": 42,
        "latent_dim": 64,
        "imagination_horizon": 5,
        "buffer_size": 10_000,
        "batch_size": 32,
        "seq_len": 16,
        "learning_rate": 3e-4,
        "gamma": 0.99,
        "obs_dim": 4,
        "n_actions": 2,
        "deter_dim": 64,
        "stoch_dim": 8,
        "stoch_classes": 8,
        "kl_balance": 0.8,
        "free_nats": 1.0,
    },
    "SAC": {
        **ACTOR_CRITIC,
        "train_freq": 1,
        "gradient_steps": 1,
        "ent_coef": "auto",
        "seed": 42,
        "auto_entropy": True,
        "target_entropy": None,
        **LISTENERS,
        "compile": False,
        **REPLACEABLE,
    },
    "TD3": {
        **ACTOR_CRITIC,
        "seed": 42,
        "policy_delay": 2,
        "target_noise": 0.2,
        "noise_clip": 0.5,
        "exploration_noise": 0.1,
        "train_freq": 1,
        "gradient_steps": 1,
        "target_policy_noise": None,
        "target_noise_clip": None,
        **LISTENERS,
        "compile": False,
        **REPLACEABLE,
    },
    "DQN": {
        **REPLAY,
        "learning_rate": 1e-4,
        "batch_size": 64,
        "gamma": 0.99,
        "target_update_freq": 1000,
        "exploration_fraction": 0.1,
        "exploration_initial_eps": 1.0,
        "exploration_final_eps": 0.05,
        "learning_starts": 1000,
        "double_dqn": True,
        "dueling": False,
        "n_step": 1,
        "prioritized": False,
        "alpha": 0.6,
        "beta_start": 0.4,
        "hidden": 256,
        "train_freq": 1,
        "gradient_steps": 1,
        "max_grad_norm": 10.0,
        "seed": 42,
        **LISTENERS,
        "compile": False,
        "q_network": None,
        "buffer": None,
        "collector": None,
        "n_envs": 1,
    },
    "TD3BC": {
        **OFFLINE,
        "alpha": 2.5,
        "hidden": 256,
        "learning_rate": 3e-4,
        "tau": 0.005,
        "gamma": 0.99,
        "policy_delay": 2,
        "target_noise": 0.2,
        "noise_clip": 0.5,
        "act_high": 1.0,
        "batch_size": 256,
        **LISTENERS,
    },
    "IQL": {
        **OFFLINE,
        "expectile": 0.7,
        "temperature": 3.0,
        "hidden": 256,
        "learning_rate": 3e-4,
        "tau": 0.005,
        "gamma": 0.99,
        "batch_size": 256,
        **LISTENERS,
    },
    "CQL": {
        **OFFLINE,
        "cql_alpha": 5.0,
        "n_random_actions": 10,
        "auto_alpha": False,
        "cql_target_value": -1.0,
        "hidden": 256,
        "learning_rate": 3e-4,
        "tau": 0.005,
        "gamma": 0.99,
        "batch_size": 256,
        "auto_entropy": True,
        "target_entropy": None,
        **LISTENERS,
    },
    "BC": {
        **OFFLINE,
        "continuous": True,
        "hidden": 256,
        "learning_rate": 3e-4,
        "batch_size": 256,
        **LISTENERS,
    },
    "algorithms.hybrid_ppo.HybridPPO": {
        "n_envs": 16,
        "seed": 42,
        "hidden": 64,
        "logger": None,
        "callbacks": None,
        **PPO_OPTIONS,
    },
    "CandleCollector": {
        "env_id": REQUIRED,
        "n_envs": REQUIRED,
        "obs_dim": REQUIRED,
        "n_actions": REQUIRED,
        "n_steps": REQUIRED,
        "hidden": 64,
        "lr": 2.5e-4,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "seed": 42,
        "capacity": 2,
    },
    "PPO": {**COMMON, **PARTS, **PPO_OPTIONS},
    "A2C": {**COMMON, **PARTS, **A2C_OPTIONS},
    "PPOConfig": {"n_envs": 8, **PPO_OPTIONS},
    "A2CConfig": {"n_envs": 8, **A2C_OPTIONS},
    "DiscretePolicy": {"obs_dim": REQUIRED, "n_actions": REQUIRED, "hidden": 64},
    "ContinuousPolicy": {"obs_dim": REQUIRED, "act_dim": REQUIRED, "hidden": 64},
    "GymVecEnv": {
        "env_id": REQUIRED,
        "n_envs": REQUIRED,
        "seed": 0,
        "record_episode_stats": True,
    },
    "VecNormalize": {
        "env": REQUIRED,
        "norm_obs": True,
        "norm_reward": True,
        "gamma": 0.99,
        "clip_obs": 10.0,
        "clip_reward": 10.0,
        "epsilon": 1e-8,
        "obs_dim": None,
    },
    "Callback": {},
    "EvalCallback": {
        "eval_env": None,
        "eval_freq": 10_000,
        "n_eval_episodes": 5,
        "best_model_path": None,
        "verbose": True,
    },
    "EarlyStoppingCallback": {"patience": 10, "min_delta": 0.0},
    "CheckpointCallback": {"save_freq": 10_000, "save_path": "checkpoints", "verbose": True},
    "ProgressBarCallback": {},
    "TimingCallback": {},
    "VideoRecordingCallback": {
        "video_folder": "videos",
        "record_freq": 50_000,
        "n_episodes": 1,
        "verbose": True,
    },
    "LoggerCallback": {},
    "ConsoleLogger": {"log_interval": 1000},
    "TensorBoardLogger": {"log_dir": "runs"},
    "WandbLogger": {"project": "rlox"},
    "Trainer": {
        "algorithm": REQUIRED,
        "env": REQUIRED,
        "config": None,
        "callbacks": None,
        "logger": None,
        "seed": 42,
        "compile": False,
    },
}
MODULES = {
    "algorithms": ["PPO", "A2C", "PPOConfig", "TD3BC", "IQL", "CQL", "BC", "SAC", "TD3", "DQN"],
    "algorithms.dqn": ["DQN"],
    "algorithms.dreamer": ["DreamerV3"],
    "algorithms.impala": ["IMPALA"],
    "algorithms.mappo": ["MAPPO", "MultiAgentCollector", "MultiAgentRolloutBatch"],
    "algorithms.sac": ["SAC"],
    "algorithms.td3": ["TD3"],
    "algorithms.td3_bc": ["TD3BC"],
    "algorithms.iql": ["IQL"],
    "algorithms.cql": ["CQL"],
    "algorithms.bc": ["BC"],
    "offline": ["OfflineAlgorithm", "OfflineDataset"],
    "offline.base": ["OfflineAlgorithm", "OfflineDataset"],
    "algorithms.ppo": ["PPO"],
    "algorithms.hybrid_ppo": ["HybridPPO"],
    "algorithms.a2c": ["A2C"],
    "policies": ["DiscretePolicy", "ContinuousPolicy"],
    "callbacks": ["Callback", "CallbackList", "EvalCallback", "CheckpointCallback"],
    "logging": ["LoggerCallback", "ConsoleLogger", "WandbLogger", "TensorBoardLogger"],
    "config": ["PPOConfig", "A2CConfig", "SACConfig", "TD3Config", "DQNConfig"],
    "trainer": ["Trainer", "ALGORITHM_REGISTRY"],
    "gym_vec_env": ["GymVecEnv"],
    "vec_normalize": ["VecNormalize"],
}


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_constructors_have_the_named_parameters_and_defaults(name: str) -> None:
    parameters = inspect.signature(attrgetter(name)(rlox)).parameters
    found = {key: parameters[key].default for key in CONSTRUCTORS[name]}
    assert found == CONSTRUCTORS[name]


def _positional(name: str) -> list[str]:
    parameters = inspect.signature(attrgetter(name)(rlox)).parameters.values()
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]


@pytest.mark.parametrize(
    "name",
    [
        "GymVecEnv",
        "VecNormalize",
        "EvalCallback",
        "CheckpointCallback",
        "Trainer",
        "TD3BC",
        "IQL",
        "CQL",
        "BC",
        "IMPALA",
        "MAPPO",
        "algorithms.dreamer.DreamerV3",
        "SAC",
        "TD3",
        "DQN",
        "CandleCollector",
    ],
)
def test_positional_arguments_keep_their_order(name: str) -> None:
    assert _positional(name) == list(CONSTRUCTORS[name])


@pytest.mark.parametrize("name", ["PPO", "A2C"])
def test_the_leading_arguments_keep_their_order(name: str) -> None:
    assert _positional(name)[:3] == ["env_id", "n_envs", "seed"]


@pytest.mark.parametrize("name", ["PPO", "A2C", "SAC", "TD3", "DQN"])
class TestAlgorithms:
    def test_methods_take_the_named_arguments(self, name: str) -> None:
        cls = getattr(rlox, name)
        for method, named in {
            "train": {"total_timesteps"},
            "save": {"path"},
            "from_checkpoint": {"path", "env_id"},
            "predict": {"obs", "deterministic"},
        }.items():
            assert named <= inspect.signature(getattr(cls, method)).parameters.keys()
        assert inspect.signature(cls.predict).parameters["deterministic"].default is True
        assert inspect.signature(cls.from_checkpoint).parameters["env_id"].default is None

    def test_the_class_names_its_configuration(self, name: str) -> None:
        cls = getattr(rlox, name)
        assert cls.Config is getattr(rlox, f"{name}Config")
        assert cls.name == name.lower()

    def test_it_is_the_algorithm_of_sharpwave(self, name: str) -> None:
        ours = getattr(sw, name)
        assert issubclass(getattr(rlox, name), ours)
        differing = set(vars(getattr(rlox, name))) - {
            "Config",
            "config",
            "Native",
            "preset",
            "order",
            "leading_arguments",
            "named_arguments",
        }
        own = {key for key in differing if not key.startswith("_")}
        assert getattr(rlox, name) is ours or own == set()


def test_configurations_take_the_other_names_of_their_fields() -> None:
    options: dict[str, Any] = {"normalize_reward": True, "clip_range": 0.1}
    config = rlox.PPOConfig(**options)
    assert (config.normalize_rewards, config.clip_eps) == (True, 0.1)


def test_configurations_go_to_dicts_and_files_and_back(tmp_path: Any) -> None:
    config = rlox.PPOConfig(n_steps=7)
    for suffix in ("yaml", "toml"):
        path = tmp_path / f"config.{suffix}"
        getattr(config, f"to_{suffix}")(path)
        assert getattr(rlox.PPOConfig, f"from_{suffix}")(path) == config
    assert rlox.PPOConfig.from_dict(config.to_dict()) == config
    assert config.merge({"n_steps": 9}).n_steps == 9


@pytest.mark.parametrize(("module", "names"), MODULES.items())
def test_modules_have_the_names_of_the_original(module: str, names: list[str]) -> None:
    found = importlib.import_module(f"sharpwave.compat.rlox.{module}")
    for name in names:
        assert getattr(found, name) is not None
        if hasattr(rlox, name):
            assert getattr(rlox, name) is getattr(found, name)


def test_every_public_name_exists_and_an_unknown_one_does_not() -> None:
    for name in rlox.__all__:
        assert getattr(rlox, name) is not None
    with pytest.raises(AttributeError, match="PPPO"):
        _ = rlox.PPPO


@pytest.mark.long
def test_modules_are_attributes_of_the_package() -> None:
    program = "import sharpwave.compat.rlox as rlox; print(rlox.algorithms.ppo.PPO.name)"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout == "ppo\n"


@pytest.mark.long
def test_importing_it_imports_neither_torch_nor_gymnasium() -> None:
    program = (
        "import sys, sharpwave.compat.rlox; print([m for m in ('torch', 'gymnasium') "
        "if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout == "[]\n"
