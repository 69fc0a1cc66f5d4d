"""`sharpwave.SAC` with rlox's arguments."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

from sharpwave.algorithms import sac
from sharpwave.compat.rlox.algorithms.off_policy import ByPosition
from sharpwave.compat.rlox.config import SACConfig

__all__ = ["SAC", "SACConfig"]


class SAC(ByPosition, sac.SAC):
    """`sharpwave.SAC`, which takes its options by position too.

    Checkpoints of either class load in the other.

    Example:
        >>> sac = SAC("Pendulum-v1", 10_000, 1e-3, learning_starts=100, hidden=32)
        >>> sac.config.buffer_size, sac.config.hidden
        (10000, (32, 32))
    """

    Config = SACConfig
    config: SACConfig
    leading_arguments: ClassVar[dict[str, Any]] = {
        "env_id": inspect.Parameter.empty,
        "buffer_size": None,
        "learning_rate": None,
        "batch_size": None,
        "tau": None,
        "gamma": None,
        "learning_starts": None,
        "hidden": None,
        "train_freq": None,
        "gradient_steps": None,
        "ent_coef": None,
        "seed": None,
        "auto_entropy": None,
        "target_entropy": None,
        "callbacks": None,
        "logger": None,
        "compile": None,
        "actor": None,
        "critic": None,
        "buffer": None,
        "collector": None,
        "n_envs": None,
    }
