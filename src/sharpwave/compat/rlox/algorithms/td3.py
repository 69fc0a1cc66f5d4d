"""`sharpwave.TD3` with rlox's arguments."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

from sharpwave.algorithms import td3
from sharpwave.compat.rlox.algorithms.off_policy import ByPosition
from sharpwave.compat.rlox.config import TD3Config

__all__ = ["TD3", "TD3Config"]


class TD3(ByPosition, td3.TD3):
    """`sharpwave.TD3`, which takes its options by position too.

    Checkpoints of either class load in the other.

    Example:
        >>> td3 = TD3("Pendulum-v1", 10_000, 1e-3, target_policy_noise=0.3, hidden=32)
        >>> td3.config.buffer_size, td3.config.target_noise
        (10000, 0.3)
    """

    Config = TD3Config
    config: TD3Config
    leading_arguments: ClassVar[dict[str, Any]] = {
        "env_id": inspect.Parameter.empty,
        "buffer_size": None,
        "learning_rate": None,
        "batch_size": None,
        "tau": None,
        "gamma": None,
        "learning_starts": None,
        "hidden": None,
        "seed": None,
        "policy_delay": None,
        "target_noise": None,
        "noise_clip": None,
        "exploration_noise": None,
        "train_freq": None,
        "gradient_steps": None,
        "target_policy_noise": None,
        "target_noise_clip": None,
        "callbacks": None,
        "logger": None,
        "compile": None,
        "actor": None,
        "critic": None,
        "buffer": None,
        "collector": None,
        "n_envs": None,
    }
