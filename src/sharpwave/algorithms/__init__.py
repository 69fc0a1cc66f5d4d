"""Algorithms, one file each."""

from sharpwave.algorithms.a2c import A2C, A2CConfig
from sharpwave.algorithms.c51 import C51, C51Config
from sharpwave.algorithms.dqn import DQN, DQNConfig
from sharpwave.algorithms.ppo import PPO, PPOConfig
from sharpwave.algorithms.qr_dqn import QRDQN, QRDQNConfig
from sharpwave.algorithms.registry import algorithm_class, algorithm_names
from sharpwave.algorithms.sac import SAC, SACConfig

__all__ = [
    "A2C",
    "C51",
    "DQN",
    "PPO",
    "QRDQN",
    "SAC",
    "A2CConfig",
    "C51Config",
    "DQNConfig",
    "PPOConfig",
    "QRDQNConfig",
    "SACConfig",
    "algorithm_class",
    "algorithm_names",
]
