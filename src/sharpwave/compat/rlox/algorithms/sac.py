"""`sharpwave.SAC` with rlox's arguments."""

from __future__ import annotations

from sharpwave.algorithms import sac
from sharpwave.compat.rlox.algorithms.by_position import ByPosition
from sharpwave.compat.rlox.algorithms.hooks import RloxAgent
from sharpwave.compat.rlox.config import SACConfig

__all__ = ["SAC", "SACConfig"]


class SAC(ByPosition, RloxAgent, sac.SAC):
    """`sharpwave.SAC`, which takes its options by position too.

    Checkpoints of either class load in the other.

    Example:
        >>> sac = SAC("Pendulum-v1", 10_000, 1e-3, learning_starts=100, hidden=32)
        >>> sac.config.buffer_size, sac.config.hidden
        (10000, (32, 32))
    """

    Config = SACConfig
    config: SACConfig
    order = (
        "env_id buffer_size learning_rate batch_size tau gamma learning_starts hidden "
        "train_freq gradient_steps ent_coef seed auto_entropy target_entropy callbacks "
        "logger compile actor critic buffer collector n_envs"
    )
