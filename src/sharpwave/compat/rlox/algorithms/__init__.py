"""Algorithms under rlox's names."""

from sharpwave.compat.rlox.algorithms.a2c import A2C
from sharpwave.compat.rlox.algorithms.ppo import PPO
from sharpwave.compat.rlox.config import PPOConfig

__all__ = ["A2C", "PPO", "PPOConfig"]
