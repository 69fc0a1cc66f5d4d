"""Algorithms, one file each."""

from sharpwave.algorithms.a2c import A2C, A2CConfig
from sharpwave.algorithms.ppo import PPO, PPOConfig
from sharpwave.algorithms.registry import algorithm_class, algorithm_names

__all__ = ["A2C", "PPO", "A2CConfig", "PPOConfig", "algorithm_class", "algorithm_names"]
