"""`sharpwave.IMPALA` with rlox's arguments."""

from __future__ import annotations

from typing import ClassVar

from sharpwave.algorithms import impala
from sharpwave.compat.rlox.algorithms.by_position import ByPosition
from sharpwave.compat.rlox.algorithms.hooks import RloxAgent
from sharpwave.compat.rlox.config import IMPALAConfig

__all__ = ["IMPALA", "IMPALAConfig"]


class IMPALA(ByPosition, RloxAgent, impala.IMPALA):
    """`sharpwave.IMPALA` under rlox's name, with its defaults.

    Example:
        >>> agent = IMPALA("CartPole-v1")
        >>> agent.config.n_actors, agent.config.n_envs, agent.config.seed
        (2, 2, 42)
        >>> agent.close()
    """

    Config = IMPALAConfig
    config: IMPALAConfig
    order: ClassVar[str] = (
        "env_id n_actors n_envs seed n_steps learning_rate gamma rho_bar c_bar vf_coef ent_coef "
        "max_grad_norm logger callbacks worker_addresses"
    )
