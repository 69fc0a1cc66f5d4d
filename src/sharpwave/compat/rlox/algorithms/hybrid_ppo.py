"""`sharpwave.HybridPPO` with rlox's arguments."""

from __future__ import annotations

from typing import Any

from sharpwave.algorithms import hybrid_ppo
from sharpwave.compat.rlox.algorithms.by_position import ByPosition
from sharpwave.compat.rlox.config import HybridPPOConfig

__all__ = ["HybridPPO", "HybridPPOConfig"]


class HybridPPO(ByPosition, hybrid_ppo.HybridPPO):
    """`sharpwave.HybridPPO`, which takes its options by position too.

    Checkpoints of either class load in the other.

    Example:
        >>> HybridPPO().config.hidden
        (64, 64)
    """

    Config = HybridPPOConfig
    config: HybridPPOConfig
    order = "env_id n_envs seed hidden logger callbacks"

    def __init__(self, env_id: Any = "CartPole-v1", *args: Any, **options: Any) -> None:
        super().__init__(env_id, *args, **options)
