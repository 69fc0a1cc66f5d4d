"""Reinforcement learning on a native core: replay buffers, primitives, and the algorithms on them.

What trains agents is imported at its first use, so that `import sharpwave` stays quick and never
imports torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sharpwave.buffers import (
    Batch,
    Field,
    Hindsight,
    Mixture,
    MmapReplayBuffer,
    NStep,
    OfflineDatasetBuffer,
    OfflineMixture,
    Prioritized,
    PrioritizedReplayBuffer,
    Recent,
    ReplayBuffer,
    Schema,
    Sequence,
    Transition,
    Uniform,
    VectorWriter,
    Where,
    WithoutReplacement,
)
from sharpwave.errors import FolderLockedError, SharpwaveIOError
from sharpwave.primitives import (
    PackedSequences,
    PackingPlan,
    RunningStats,
    compute_batch_group_advantages,
    compute_batch_token_kl,
    compute_batch_token_kl_f32,
    compute_batch_token_kl_schulman,
    compute_batch_token_kl_schulman_f32,
    compute_gae,
    compute_gae_batched,
    compute_gae_batched_f32,
    compute_group_advantages,
    compute_token_kl,
    compute_token_kl_f32,
    compute_token_kl_schulman,
    compute_token_kl_schulman_f32,
    compute_vtrace,
    discounted_returns,
    gae,
    n_step_returns,
    pack_sequences,
    plan_packing,
    polyak,
    vtrace,
)

if TYPE_CHECKING:
    from sharpwave import datasets as datasets
    from sharpwave.algorithms import (
        A2C as A2C,
    )
    from sharpwave.algorithms import (
        BC as BC,
    )
    from sharpwave.algorithms import (
        C51 as C51,
    )
    from sharpwave.algorithms import (
        CQL as CQL,
    )
    from sharpwave.algorithms import (
        DDPG as DDPG,
    )
    from sharpwave.algorithms import (
        DQN as DQN,
    )
    from sharpwave.algorithms import (
        IQL as IQL,
    )
    from sharpwave.algorithms import (
        PPO as PPO,
    )
    from sharpwave.algorithms import (
        QRDQN as QRDQN,
    )
    from sharpwave.algorithms import (
        SAC as SAC,
    )
    from sharpwave.algorithms import (
        TD3 as TD3,
    )
    from sharpwave.algorithms import (
        TD3BC as TD3BC,
    )
    from sharpwave.algorithms import (
        TQC as TQC,
    )
    from sharpwave.algorithms import (
        A2CConfig as A2CConfig,
    )
    from sharpwave.algorithms import (
        BCConfig as BCConfig,
    )
    from sharpwave.algorithms import (
        C51Config as C51Config,
    )
    from sharpwave.algorithms import (
        CQLConfig as CQLConfig,
    )
    from sharpwave.algorithms import (
        CrossQ as CrossQ,
    )
    from sharpwave.algorithms import (
        CrossQConfig as CrossQConfig,
    )
    from sharpwave.algorithms import (
        DDPGConfig as DDPGConfig,
    )
    from sharpwave.algorithms import (
        DiscreteSAC as DiscreteSAC,
    )
    from sharpwave.algorithms import (
        DiscreteSACConfig as DiscreteSACConfig,
    )
    from sharpwave.algorithms import (
        DQNConfig as DQNConfig,
    )
    from sharpwave.algorithms import (
        HybridPPO as HybridPPO,
    )
    from sharpwave.algorithms import (
        HybridPPOConfig as HybridPPOConfig,
    )
    from sharpwave.algorithms import (
        IQLConfig as IQLConfig,
    )
    from sharpwave.algorithms import (
        PPOConfig as PPOConfig,
    )
    from sharpwave.algorithms import (
        QRDQNConfig as QRDQNConfig,
    )
    from sharpwave.algorithms import (
        ReBRAC as ReBRAC,
    )
    from sharpwave.algorithms import (
        ReBRACConfig as ReBRACConfig,
    )
    from sharpwave.algorithms import (
        SACConfig as SACConfig,
    )
    from sharpwave.algorithms import (
        TD3BCConfig as TD3BCConfig,
    )
    from sharpwave.algorithms import (
        TD3Config as TD3Config,
    )
    from sharpwave.algorithms import (
        TQCConfig as TQCConfig,
    )
    from sharpwave.buffers.tensors import (
        ResetStrategy as ResetStrategy,
    )
    from sharpwave.buffers.tensors import (
        RolloutBuffer as RolloutBuffer,
    )
    from sharpwave.buffers.tensors import (
        SharedReplayBuffer as SharedReplayBuffer,
    )
    from sharpwave.buffers.tensors import (
        StatsTracker as StatsTracker,
    )
    from sharpwave.buffers.tensors import (
        TensorPrioritizedReplayBuffer as TensorPrioritizedReplayBuffer,
    )
    from sharpwave.buffers.tensors import (
        TensorReplayBuffer as TensorReplayBuffer,
    )
    from sharpwave.collect import (
        NativeCollector as CandleCollector,
    )
    from sharpwave.collect import (
        NativeCollector as NativeCollector,
    )
    from sharpwave.envs import (
        VecNormalize as VecNormalize,
    )
    from sharpwave.envs import (
        make_vec_env as make_vec_env,
    )
    from sharpwave.episodes import (
        EpisodeBuffer as EpisodeBuffer,
    )
    from sharpwave.episodes import (
        EpisodeDataset as EpisodeDataset,
    )
    from sharpwave.episodes import (
        EpisodeLoader as EpisodeLoader,
    )
    from sharpwave.episodes import (
        EpisodeUnion as EpisodeUnion,
    )
    from sharpwave.episodes.record import (
        RecordEpisodes as RecordEpisodes,
    )
    from sharpwave.episodes.record_vector import (
        RecordVectorEpisodes as RecordVectorEpisodes,
    )
    from sharpwave.train.callbacks import (
        Callback as Callback,
    )
    from sharpwave.train.callbacks import (
        CheckpointCallback as CheckpointCallback,
    )
    from sharpwave.train.callbacks import (
        EarlyStoppingCallback as EarlyStoppingCallback,
    )
    from sharpwave.train.callbacks import (
        EvalCallback as EvalCallback,
    )
    from sharpwave.train.callbacks import (
        ProgressCallback as ProgressCallback,
    )
    from sharpwave.train.callbacks import (
        StopOnReturn as StopOnReturn,
    )
    from sharpwave.train.callbacks import (
        VideoCallback as VideoCallback,
    )
    from sharpwave.train.loggers import (
        ConsoleLogger as ConsoleLogger,
    )
    from sharpwave.train.loggers import (
        CSVLogger as CSVLogger,
    )
    from sharpwave.train.loggers import (
        JSONLLogger as JSONLLogger,
    )
    from sharpwave.train.loggers import (
        LoggerCallback as LoggerCallback,
    )
    from sharpwave.train.loggers import (
        MLflowLogger as MLflowLogger,
    )
    from sharpwave.train.loggers import (
        TensorBoardLogger as TensorBoardLogger,
    )
    from sharpwave.train.loggers import (
        WandbLogger as WandbLogger,
    )
    from sharpwave.train.offline import (
        OfflineAlgorithm as OfflineAlgorithm,
    )
    from sharpwave.train.offline_data import (
        OfflineDataset as OfflineDataset,
    )
    from sharpwave.train.schedules import (
        Linear as Linear,
    )
    from sharpwave.train.trainer import (
        Trainer as Trainer,
    )

_ALIASES = {"CandleCollector": "NativeCollector"}
_LAZY_MODULES = {"datasets"}
_LAZY = {
    "ReBRAC": "sharpwave.algorithms",
    "ReBRACConfig": "sharpwave.algorithms",
    "BC": "sharpwave.algorithms",
    "BCConfig": "sharpwave.algorithms",
    "CQL": "sharpwave.algorithms",
    "CQLConfig": "sharpwave.algorithms",
    "IQL": "sharpwave.algorithms",
    "IQLConfig": "sharpwave.algorithms",
    "TD3BC": "sharpwave.algorithms",
    "TD3BCConfig": "sharpwave.algorithms",
    "OfflineAlgorithm": "sharpwave.train.offline",
    "OfflineDataset": "sharpwave.train.offline_data",
    "A2C": "sharpwave.algorithms",
    "A2CConfig": "sharpwave.algorithms",
    "C51": "sharpwave.algorithms",
    "DQN": "sharpwave.algorithms",
    "PPO": "sharpwave.algorithms",
    "HybridPPO": "sharpwave.algorithms",
    "HybridPPOConfig": "sharpwave.algorithms",
    "CandleCollector": "sharpwave.collect",
    "NativeCollector": "sharpwave.collect",
    "C51Config": "sharpwave.algorithms",
    "DQNConfig": "sharpwave.algorithms",
    "PPOConfig": "sharpwave.algorithms",
    "QRDQN": "sharpwave.algorithms",
    "SAC": "sharpwave.algorithms",
    "QRDQNConfig": "sharpwave.algorithms",
    "SACConfig": "sharpwave.algorithms",
    "TD3": "sharpwave.algorithms",
    "TD3Config": "sharpwave.algorithms",
    "DDPG": "sharpwave.algorithms",
    "DDPGConfig": "sharpwave.algorithms",
    "TQC": "sharpwave.algorithms",
    "TQCConfig": "sharpwave.algorithms",
    "CrossQ": "sharpwave.algorithms",
    "CrossQConfig": "sharpwave.algorithms",
    "DiscreteSAC": "sharpwave.algorithms",
    "DiscreteSACConfig": "sharpwave.algorithms",
    "ResetStrategy": "sharpwave.buffers.tensors",
    "RolloutBuffer": "sharpwave.buffers.tensors",
    "SharedReplayBuffer": "sharpwave.buffers.tensors",
    "StatsTracker": "sharpwave.buffers.tensors",
    "TensorPrioritizedReplayBuffer": "sharpwave.buffers.tensors",
    "TensorReplayBuffer": "sharpwave.buffers.tensors",
    "VecNormalize": "sharpwave.envs",
    "make_vec_env": "sharpwave.envs",
    "EpisodeBuffer": "sharpwave.episodes",
    "EpisodeDataset": "sharpwave.episodes",
    "EpisodeLoader": "sharpwave.episodes",
    "EpisodeUnion": "sharpwave.episodes",
    "RecordEpisodes": "sharpwave.episodes.record",
    "RecordVectorEpisodes": "sharpwave.episodes.record_vector",
    "Callback": "sharpwave.train.callbacks",
    "CheckpointCallback": "sharpwave.train.callbacks",
    "EarlyStoppingCallback": "sharpwave.train.callbacks",
    "EvalCallback": "sharpwave.train.callbacks",
    "ProgressCallback": "sharpwave.train.callbacks",
    "StopOnReturn": "sharpwave.train.callbacks",
    "VideoCallback": "sharpwave.train.callbacks",
    "ConsoleLogger": "sharpwave.train.loggers",
    "CSVLogger": "sharpwave.train.loggers",
    "JSONLLogger": "sharpwave.train.loggers",
    "LoggerCallback": "sharpwave.train.loggers",
    "MLflowLogger": "sharpwave.train.loggers",
    "TensorBoardLogger": "sharpwave.train.loggers",
    "WandbLogger": "sharpwave.train.loggers",
    "Linear": "sharpwave.train.schedules",
    "Trainer": "sharpwave.train.trainer",
}

__version__ = "0.1.0"

__all__ = [
    "A2C",
    "BC",
    "C51",
    "CQL",
    "DDPG",
    "DQN",
    "IQL",
    "PPO",
    "QRDQN",
    "SAC",
    "TD3",
    "TD3BC",
    "TQC",
    "A2CConfig",
    "BCConfig",
    "Batch",
    "C51Config",
    "CQLConfig",
    "CSVLogger",
    "Callback",
    "CandleCollector",
    "CheckpointCallback",
    "ConsoleLogger",
    "CrossQ",
    "CrossQConfig",
    "DDPGConfig",
    "DQNConfig",
    "DiscreteSAC",
    "DiscreteSACConfig",
    "EarlyStoppingCallback",
    "EpisodeBuffer",
    "EpisodeDataset",
    "EpisodeLoader",
    "EpisodeUnion",
    "EvalCallback",
    "Field",
    "FolderLockedError",
    "Hindsight",
    "HybridPPO",
    "HybridPPOConfig",
    "IQLConfig",
    "JSONLLogger",
    "Linear",
    "LoggerCallback",
    "MLflowLogger",
    "Mixture",
    "MmapReplayBuffer",
    "NStep",
    "NativeCollector",
    "OfflineAlgorithm",
    "OfflineDataset",
    "OfflineDatasetBuffer",
    "OfflineMixture",
    "PPOConfig",
    "PackedSequences",
    "PackingPlan",
    "Prioritized",
    "PrioritizedReplayBuffer",
    "ProgressCallback",
    "QRDQNConfig",
    "ReBRAC",
    "ReBRACConfig",
    "Recent",
    "RecordEpisodes",
    "RecordVectorEpisodes",
    "ReplayBuffer",
    "ResetStrategy",
    "RolloutBuffer",
    "RunningStats",
    "SACConfig",
    "Schema",
    "Sequence",
    "SharedReplayBuffer",
    "SharpwaveIOError",
    "StatsTracker",
    "StopOnReturn",
    "TD3BCConfig",
    "TD3Config",
    "TQCConfig",
    "TensorBoardLogger",
    "TensorPrioritizedReplayBuffer",
    "TensorReplayBuffer",
    "Trainer",
    "Transition",
    "Uniform",
    "VecNormalize",
    "VectorWriter",
    "VideoCallback",
    "WandbLogger",
    "Where",
    "WithoutReplacement",
    "__version__",
    "compute_batch_group_advantages",
    "compute_batch_token_kl",
    "compute_batch_token_kl_f32",
    "compute_batch_token_kl_schulman",
    "compute_batch_token_kl_schulman_f32",
    "compute_gae",
    "compute_gae_batched",
    "compute_gae_batched_f32",
    "compute_group_advantages",
    "compute_token_kl",
    "compute_token_kl_f32",
    "compute_token_kl_schulman",
    "compute_token_kl_schulman_f32",
    "compute_vtrace",
    "datasets",
    "discounted_returns",
    "gae",
    "make_vec_env",
    "n_step_returns",
    "pack_sequences",
    "plan_packing",
    "polyak",
    "vtrace",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY_MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), _ALIASES.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
