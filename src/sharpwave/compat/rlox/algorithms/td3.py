"""`sharpwave.TD3` with rlox's arguments."""

from __future__ import annotations

from sharpwave.algorithms import td3
from sharpwave.compat.rlox.algorithms.by_position import ByPosition
from sharpwave.compat.rlox.algorithms.hooks import RloxAgent
from sharpwave.compat.rlox.config import TD3Config

__all__ = ["TD3", "TD3Config"]


class TD3(ByPosition, RloxAgent, td3.TD3):
    """`sharpwave.TD3`, which takes its options by position too.

    Checkpoints of either class load in the other.

    Example:
        >>> td3 = TD3("Pendulum-v1", 10_000, 1e-3, target_policy_noise=0.3, hidden=32)
        >>> td3.config.buffer_size, td3.config.target_noise
        (10000, 0.3)
    """

    Config = TD3Config
    config: TD3Config
    order = (
        "env_id buffer_size learning_rate batch_size tau gamma learning_starts hidden "
        "seed policy_delay target_noise noise_clip exploration_noise train_freq "
        "gradient_steps target_policy_noise target_noise_clip callbacks logger compile "
        "actor critic buffer collector n_envs"
    )
