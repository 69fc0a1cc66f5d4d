"""`sharpwave.CQL` with rlox's arguments."""

from __future__ import annotations

from sharpwave.algorithms import cql
from sharpwave.compat.rlox.algorithms.by_position import ByPosition
from sharpwave.compat.rlox.algorithms.hooks import RloxAgent
from sharpwave.compat.rlox.config import CQLConfig

__all__ = ["CQL", "CQLConfig"]


class CQL(ByPosition, RloxAgent, cql.CQL):
    """`sharpwave.CQL`, which takes its options by position too.

    Checkpoints of either class load in the other.
    """

    Config = CQLConfig
    config: CQLConfig
    order = (
        "dataset obs_dim act_dim cql_alpha n_random_actions auto_alpha cql_target_value "
        "hidden learning_rate tau gamma batch_size auto_entropy target_entropy callbacks "
        "logger"
    )
