"""`sharpwave.A2C` under rlox's name."""

from sharpwave.algorithms import A2C, A2CConfig

__all__ = ["A2C", "A2CConfig"]
