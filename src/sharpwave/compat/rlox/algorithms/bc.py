"""`sharpwave.BC` with rlox's arguments."""

from __future__ import annotations

from sharpwave.algorithms import bc
from sharpwave.compat.rlox.algorithms.by_position import ByPosition
from sharpwave.compat.rlox.algorithms.hooks import RloxAgent
from sharpwave.compat.rlox.config import BCConfig

__all__ = ["BC", "BCConfig"]


class BC(ByPosition, RloxAgent, bc.BC):
    """`sharpwave.BC`, which takes its options by position too.

    Checkpoints of either class load in the other.
    """

    Config = BCConfig
    config: BCConfig
    order = "dataset obs_dim act_dim continuous hidden learning_rate batch_size callbacks logger"
