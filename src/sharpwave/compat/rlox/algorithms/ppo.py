"""`sharpwave.PPO` with rlox's default of value clipping."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sharpwave.algorithms import ppo
from sharpwave.compat.rlox.algorithms.hooks import RloxAgent
from sharpwave.compat.rlox.algorithms.minibatches import NativePPOByMinibatch
from sharpwave.compat.rlox.config import PPOConfig

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["PPO", "PPOConfig"]


class PPO(RloxAgent, ppo.PPO):
    """`sharpwave.PPO`, which clips values unless told otherwise.

    Checkpoints of either class load in the other.

    Example:
        >>> PPO("CartPole-v1").config.clip_vloss
        True
    """

    Native = NativePPOByMinibatch
    Config = PPOConfig
    config: PPOConfig

    @classmethod
    def preset(cls, env_id: str, **overrides: Any) -> Self:
        """Settings known to work for an environment; they do not clip values."""
        return super().preset(env_id, **{"clip_vloss": False, **overrides})
