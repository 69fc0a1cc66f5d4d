"""Algorithms, one file each."""

from sharpwave.algorithms.a2c import A2C, A2CConfig
from sharpwave.algorithms.crossq import CrossQ, CrossQConfig
from sharpwave.algorithms.ddpg import DDPG, DDPGConfig
from sharpwave.algorithms.discrete_sac import DiscreteSAC, DiscreteSACConfig
from sharpwave.algorithms.ppo import PPO, PPOConfig
from sharpwave.algorithms.registry import algorithm_class, algorithm_names
from sharpwave.algorithms.sac import SAC, SACConfig
from sharpwave.algorithms.td3 import TD3, TD3Config
from sharpwave.algorithms.tqc import TQC, TQCConfig

__all__ = [
    "A2C",
    "DDPG",
    "PPO",
    "SAC",
    "TD3",
    "TQC",
    "A2CConfig",
    "CrossQ",
    "CrossQConfig",
    "DDPGConfig",
    "DiscreteSAC",
    "DiscreteSACConfig",
    "PPOConfig",
    "SACConfig",
    "TD3Config",
    "TQCConfig",
    "algorithm_class",
    "algorithm_names",
]
