"""rlox's buffers, primitives and training under its names and signatures.

    import sharpwave.compat.rlox as rlox

Names, argument names and order, defaults, keys, shapes and dtypes are those that a program relies
on. docs/compat.md lists what is deliberately different. What trains agents is imported at its first
use, so that this module never imports torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from sharpwave import primitives
from sharpwave.buffers import OfflineDatasetBuffer, PrioritizedReplayBuffer
from sharpwave.compat.rlox.absent import reason_for
from sharpwave.compat.rlox.mmap import MmapReplayBuffer
from sharpwave.compat.rlox.record import ExperienceRecord
from sharpwave.compat.rlox.replay import ReplayBuffer
from sharpwave.primitives import (
    compute_batch_group_advantages,
    compute_gae,
    compute_gae_batched,
    compute_gae_batched_f32,
    compute_group_advantages,
    compute_token_kl,
    compute_token_kl_f32,
    compute_token_kl_schulman,
    compute_token_kl_schulman_f32,
    compute_vtrace,
)

if TYPE_CHECKING:
    from sharpwave.compat.rlox.algorithms import A2C as A2C
    from sharpwave.compat.rlox.algorithms import BC as BC
    from sharpwave.compat.rlox.algorithms import CQL as CQL
    from sharpwave.compat.rlox.algorithms import DQN as DQN
    from sharpwave.compat.rlox.algorithms import IMPALA as IMPALA
    from sharpwave.compat.rlox.algorithms import IQL as IQL
    from sharpwave.compat.rlox.algorithms import MAPPO as MAPPO
    from sharpwave.compat.rlox.algorithms import PPO as PPO
    from sharpwave.compat.rlox.algorithms import SAC as SAC
    from sharpwave.compat.rlox.algorithms import TD3 as TD3
    from sharpwave.compat.rlox.algorithms import TD3BC as TD3BC
    from sharpwave.compat.rlox.algorithms import DreamerV3 as DreamerV3
    from sharpwave.compat.rlox.callbacks import Callback as Callback
    from sharpwave.compat.rlox.callbacks import CallbackList as CallbackList
    from sharpwave.compat.rlox.callbacks import CheckpointCallback as CheckpointCallback
    from sharpwave.compat.rlox.callbacks import EarlyStoppingCallback as EarlyStoppingCallback
    from sharpwave.compat.rlox.callbacks import EvalCallback as EvalCallback
    from sharpwave.compat.rlox.callbacks import ProgressBarCallback as ProgressBarCallback
    from sharpwave.compat.rlox.callbacks import TimingCallback as TimingCallback
    from sharpwave.compat.rlox.callbacks import VideoRecordingCallback as VideoRecordingCallback
    from sharpwave.compat.rlox.candle_collector import CandleCollector as CandleCollector
    from sharpwave.compat.rlox.config import A2CConfig as A2CConfig
    from sharpwave.compat.rlox.config import DQNConfig as DQNConfig
    from sharpwave.compat.rlox.config import PPOConfig as PPOConfig
    from sharpwave.compat.rlox.config import SACConfig as SACConfig
    from sharpwave.compat.rlox.config import TD3Config as TD3Config
    from sharpwave.compat.rlox.distributed import RemoteEnvPool as RemoteEnvPool
    from sharpwave.compat.rlox.envs import CartPole as CartPole
    from sharpwave.compat.rlox.envs import GymEnv as GymEnv
    from sharpwave.compat.rlox.functions import average_weight_vectors as average_weight_vectors
    from sharpwave.compat.rlox.functions import (
        compute_goal_distance_potentials as compute_goal_distance_potentials,
    )
    from sharpwave.compat.rlox.functions import py_sample_mixed as py_sample_mixed
    from sharpwave.compat.rlox.functions import random_shift_batch as random_shift_batch
    from sharpwave.compat.rlox.functions import reptile_update as reptile_update
    from sharpwave.compat.rlox.functions import shape_rewards_pbrs as shape_rewards_pbrs
    from sharpwave.compat.rlox.gym_vec_env import GymVecEnv as GymVecEnv
    from sharpwave.compat.rlox.logging import ConsoleLogger as ConsoleLogger
    from sharpwave.compat.rlox.logging import LoggerCallback as LoggerCallback
    from sharpwave.compat.rlox.logging import TensorBoardLogger as TensorBoardLogger
    from sharpwave.compat.rlox.logging import WandbLogger as WandbLogger
    from sharpwave.compat.rlox.offline import OfflineAlgorithm as OfflineAlgorithm
    from sharpwave.compat.rlox.offline import OfflineDataset as OfflineDataset
    from sharpwave.compat.rlox.policies import ContinuousPolicy as ContinuousPolicy
    from sharpwave.compat.rlox.policies import DiscretePolicy as DiscretePolicy
    from sharpwave.compat.rlox.runner import train_from_config as train_from_config
    from sharpwave.compat.rlox.sequences import HERBuffer as HERBuffer
    from sharpwave.compat.rlox.sequences import SequenceReplayBuffer as SequenceReplayBuffer
    from sharpwave.compat.rlox.statistics import RunningStats as RunningStats
    from sharpwave.compat.rlox.statistics import RunningStatsVec as RunningStatsVec
    from sharpwave.compat.rlox.tables import DPOPair as DPOPair
    from sharpwave.compat.rlox.tables import ExperienceTable as ExperienceTable
    from sharpwave.compat.rlox.tables import VarLenStore as VarLenStore
    from sharpwave.compat.rlox.trainer import ALGORITHM_REGISTRY as ALGORITHM_REGISTRY
    from sharpwave.compat.rlox.trainer import Trainer as Trainer
    from sharpwave.compat.rlox.training_config import TrainingConfig as TrainingConfig
    from sharpwave.compat.rlox.vec_env import VecEnv as VecEnv
    from sharpwave.compat.rlox.vec_normalize import VecNormalize as VecNormalize

_LAZY = {
    "A2C": "algorithms",
    "BC": "algorithms",
    "CQL": "algorithms",
    "DQN": "algorithms",
    "IMPALA": "algorithms",
    "IQL": "algorithms",
    "MAPPO": "algorithms",
    "PPO": "algorithms",
    "SAC": "algorithms",
    "TD3": "algorithms",
    "TD3BC": "algorithms",
    "DreamerV3": "algorithms",
    "Callback": "callbacks",
    "CheckpointCallback": "callbacks",
    "EarlyStoppingCallback": "callbacks",
    "EvalCallback": "callbacks",
    "ProgressBarCallback": "callbacks",
    "TimingCallback": "callbacks",
    "VideoRecordingCallback": "callbacks",
    "CandleCollector": "candle_collector",
    "A2CConfig": "config",
    "DQNConfig": "config",
    "PPOConfig": "config",
    "SACConfig": "config",
    "TD3Config": "config",
    "RemoteEnvPool": "distributed",
    "GymVecEnv": "gym_vec_env",
    "ConsoleLogger": "logging",
    "LoggerCallback": "logging",
    "TensorBoardLogger": "logging",
    "WandbLogger": "logging",
    "OfflineAlgorithm": "offline",
    "OfflineDataset": "offline",
    "ContinuousPolicy": "policies",
    "DiscretePolicy": "policies",
    "ALGORITHM_REGISTRY": "trainer",
    "Trainer": "trainer",
    "VecEnv": "vec_env",
    "VecNormalize": "vec_normalize",
    "CallbackList": "callbacks",
    "RunningStats": "statistics",
    "RunningStatsVec": "statistics",
    "CartPole": "envs",
    "GymEnv": "envs",
    "DPOPair": "tables",
    "ExperienceTable": "tables",
    "VarLenStore": "tables",
    "HERBuffer": "sequences",
    "SequenceReplayBuffer": "sequences",
    "TrainingConfig": "training_config",
    "train_from_config": "runner",
    "average_weight_vectors": "functions",
    "compute_goal_distance_potentials": "functions",
    "py_sample_mixed": "functions",
    "random_shift_batch": "functions",
    "reptile_update": "functions",
    "shape_rewards_pbrs": "functions",
}

__all__ = [
    "A2C",
    "ALGORITHM_REGISTRY",
    "BC",
    "CQL",
    "DQN",
    "IMPALA",
    "IQL",
    "MAPPO",
    "PPO",
    "SAC",
    "TD3",
    "TD3BC",
    "A2CConfig",
    "Callback",
    "CallbackList",
    "CandleCollector",
    "CartPole",
    "CheckpointCallback",
    "ConsoleLogger",
    "ContinuousPolicy",
    "DPOPair",
    "DQNConfig",
    "DiscretePolicy",
    "DreamerV3",
    "EarlyStoppingCallback",
    "EvalCallback",
    "ExperienceRecord",
    "ExperienceTable",
    "GymEnv",
    "GymVecEnv",
    "HERBuffer",
    "LoggerCallback",
    "MmapReplayBuffer",
    "OfflineAlgorithm",
    "OfflineDataset",
    "OfflineDatasetBuffer",
    "PPOConfig",
    "PrioritizedReplayBuffer",
    "ProgressBarCallback",
    "RemoteEnvPool",
    "ReplayBuffer",
    "RunningStats",
    "RunningStatsVec",
    "SACConfig",
    "SequenceReplayBuffer",
    "TD3Config",
    "TensorBoardLogger",
    "TimingCallback",
    "Trainer",
    "TrainingConfig",
    "VarLenStore",
    "VecEnv",
    "VecNormalize",
    "VideoRecordingCallback",
    "WandbLogger",
    "__version__",
    "average_weight_vectors",
    "compute_batch_group_advantages",
    "compute_batch_token_kl",
    "compute_batch_token_kl_f32",
    "compute_batch_token_kl_schulman",
    "compute_batch_token_kl_schulman_f32",
    "compute_gae",
    "compute_gae_batched",
    "compute_gae_batched_f32",
    "compute_goal_distance_potentials",
    "compute_group_advantages",
    "compute_token_kl",
    "compute_token_kl_f32",
    "compute_token_kl_schulman",
    "compute_token_kl_schulman_f32",
    "compute_vtrace",
    "pack_sequences",
    "py_sample_mixed",
    "random_shift_batch",
    "reptile_update",
    "shape_rewards_pbrs",
    "train_from_config",
]

__version__ = "1.2.0"
"""The version of rlox whose names these are."""

P = ParamSpec("P")
R = TypeVar("R")


def _also_named(function: Callable[P, R], **names: str) -> Callable[..., R]:
    """The function, which takes some keywords under a second name too."""

    @wraps(function)
    def renamed(*args: Any, **keywords: Any) -> R:
        return function(*args, **{names.get(key, key): value for key, value in keywords.items()})

    return renamed


_KL_NAMES = {"log_probs_policy": "log_p", "log_probs_ref": "log_q"}

compute_batch_token_kl = _also_named(primitives.compute_batch_token_kl, **_KL_NAMES)
compute_batch_token_kl_f32 = _also_named(primitives.compute_batch_token_kl_f32, **_KL_NAMES)
compute_batch_token_kl_schulman = _also_named(
    primitives.compute_batch_token_kl_schulman, **_KL_NAMES
)
compute_batch_token_kl_schulman_f32 = _also_named(
    primitives.compute_batch_token_kl_schulman_f32, **_KL_NAMES
)
pack_sequences = _also_named(primitives.pack_sequences, max_length="max_len")


def __getattr__(name: str) -> Any:
    if name in _LAZY.values():
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _LAZY:
        known = reason_for(name)
        raise AttributeError(known or f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = value  # found without coming here again
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_LAZY.values()})
