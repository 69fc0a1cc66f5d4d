"""Algorithms, one file each."""

from sharpwave.algorithms.a2c import A2C, A2CConfig
from sharpwave.algorithms.ppo import PPO, PPOConfig
from sharpwave.algorithms.registry import algorithm_class, algorithm_names
from sharpwave.algorithms.sac import SAC, SACConfig

__all__ = [
    "A2C",
    "PPO",
    "SAC",
    "A2CConfig",
    "PPOConfig",
    "SACConfig",
    "algorithm_class",
    "algorithm_names",
]
