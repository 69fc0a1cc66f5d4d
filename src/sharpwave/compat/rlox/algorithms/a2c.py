"""`sharpwave.A2C` with rlox's default of the seed."""

from __future__ import annotations

from sharpwave.algorithms import a2c
from sharpwave.compat.rlox.algorithms.hooks import RloxAgent
from sharpwave.compat.rlox.config import A2CConfig

__all__ = ["A2C", "A2CConfig"]


class A2C(RloxAgent, a2c.A2C):
    """`sharpwave.A2C`, whose seed is 42 unless told otherwise.

    Checkpoints of either class load in the other.
    """

    Config = A2CConfig
    config: A2CConfig
