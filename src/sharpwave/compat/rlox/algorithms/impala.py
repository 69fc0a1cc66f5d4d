"""`sharpwave.IMPALA` with rlox's arguments."""

from __future__ import annotations

from typing import Any, ClassVar

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

    def __init__(self, *args: Any, **options: Any) -> None:
        addresses = options.pop("worker_addresses", None)
        if len(args) == len(self.order.split()):
            addresses, args = args[-1], args[:-1]
        if addresses is not None:
            raise ValueError(
                "worker_addresses must be None: environments on other machines come with later "
                f"work, got {addresses!r}"
            )
        super().__init__(*args, **options)
