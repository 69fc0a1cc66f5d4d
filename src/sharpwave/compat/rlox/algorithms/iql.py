"""`sharpwave.IQL` with rlox's arguments."""

from __future__ import annotations

from sharpwave.algorithms import iql
from sharpwave.compat.rlox.algorithms.by_position import ByPosition
from sharpwave.compat.rlox.algorithms.hooks import RloxAgent
from sharpwave.compat.rlox.config import IQLConfig

__all__ = ["IQL", "IQLConfig"]


class IQL(ByPosition, RloxAgent, iql.IQL):
    """`sharpwave.IQL`, which takes its options by position too.

    Checkpoints of either class load in the other.
    """

    Config = IQLConfig
    config: IQLConfig
    order = (
        "dataset obs_dim act_dim expectile temperature hidden learning_rate tau gamma "
        "batch_size callbacks logger"
    )
