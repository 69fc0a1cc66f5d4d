"""Algorithms, one file each."""

from sharpwave.algorithms.a2c import A2C, A2CConfig
from sharpwave.algorithms.c51 import C51, C51Config
from sharpwave.algorithms.crossq import CrossQ, CrossQConfig
from sharpwave.algorithms.ddpg import DDPG, DDPGConfig
from sharpwave.algorithms.discrete_sac import DiscreteSAC, DiscreteSACConfig
from sharpwave.algorithms.dqn import DQN, DQNConfig
from sharpwave.algorithms.ppo import PPO, PPOConfig
from sharpwave.algorithms.qr_dqn import QRDQN, QRDQNConfig
from sharpwave.algorithms.registry import algorithm_class, algorithm_names
from sharpwave.algorithms.sac import SAC, SACConfig
from sharpwave.algorithms.td3 import TD3, TD3Config
from sharpwave.algorithms.tqc import TQC, TQCConfig

__all__ = [
    "A2C",
    "C51",
    "DDPG",
    "DQN",
    "PPO",
    "QRDQN",
    "SAC",
    "TD3",
    "TQC",
    "A2CConfig",
    "C51Config",
    "CrossQ",
    "CrossQConfig",
    "DDPGConfig",
    "DQNConfig",
    "DiscreteSAC",
    "DiscreteSACConfig",
    "PPOConfig",
    "QRDQNConfig",
    "SACConfig",
    "TD3Config",
    "TQCConfig",
    "algorithm_class",
    "algorithm_names",
]
