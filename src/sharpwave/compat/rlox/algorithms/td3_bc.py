"""`sharpwave.TD3BC` with rlox's arguments."""

from __future__ import annotations

from sharpwave.algorithms import td3_bc
from sharpwave.compat.rlox.algorithms.by_position import ByPosition
from sharpwave.compat.rlox.algorithms.hooks import RloxAgent
from sharpwave.compat.rlox.config import TD3BCConfig

__all__ = ["TD3BC", "TD3BCConfig"]


class TD3BC(ByPosition, RloxAgent, td3_bc.TD3BC):
    """`sharpwave.TD3BC`, which takes its options by position too.

    Checkpoints of either class load in the other.
    """

    Config = TD3BCConfig
    config: TD3BCConfig
    order = (
        "dataset obs_dim act_dim alpha hidden learning_rate tau gamma policy_delay "
        "target_noise noise_clip act_high batch_size callbacks logger"
    )
