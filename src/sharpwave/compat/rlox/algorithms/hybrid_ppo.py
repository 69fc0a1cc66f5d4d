"""`sharpwave.HybridPPO` with rlox's arguments."""

from __future__ import annotations

from typing import Any, ClassVar

from sharpwave.algorithms import hybrid_ppo
from sharpwave.compat.rlox.algorithms.by_position import ByPosition
from sharpwave.compat.rlox.algorithms.hooks import RloxAgent
from sharpwave.compat.rlox.algorithms.minibatches import NativePPOByMinibatch
from sharpwave.compat.rlox.config import HybridPPOConfig

__all__ = ["HybridPPO", "HybridPPOConfig"]


class HybridPPO(ByPosition, RloxAgent, hybrid_ppo.HybridPPO):
    """`sharpwave.HybridPPO` under rlox's name.

    Example:
        >>> agent = HybridPPO(n_steps=32)
        >>> agent.env_id, agent.config.n_envs, agent.config.hidden
        ('CartPole-v1', 16, (64, 64))
        >>> agent.close()
    """

    Native = NativePPOByMinibatch
    Config = HybridPPOConfig
    config: HybridPPOConfig
    order: ClassVar[str] = "env_id n_envs seed hidden logger callbacks"

    def __init__(self, *args: Any, **options: Any) -> None:
        if not args:
            options.setdefault("env_id", "CartPole-v1")
        super().__init__(*args, **options)
