"""`sharpwave.TD3BC` with rlox's arguments."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, ClassVar

from sharpwave.algorithms import td3_bc
from sharpwave.compat.rlox.offline.base import ByPosition

__all__ = ["TD3BC", "TD3BCConfig"]


@dataclass(frozen=True, kw_only=True)
class TD3BCConfig(td3_bc.TD3BCConfig):
    """Options of TD3+BC, with rlox's defaults."""

    hidden: tuple[int, ...] = 256  # type: ignore[assignment]
    """Width of the two hidden layers, or the width of each."""
    act_high: float | tuple[float, ...] | None = 1.0
    """Highest action, of all dimensions or of each; the lowest is its negative."""


class TD3BC(ByPosition, td3_bc.TD3BC):
    """`sharpwave.TD3BC`, which takes its options by position too.

    Checkpoints of either class load in the other.
    """

    Config = TD3BCConfig
    config: TD3BCConfig
    leading_arguments: ClassVar[dict[str, Any]] = {
        "dataset": inspect.Parameter.empty,
        "obs_dim": inspect.Parameter.empty,
        "act_dim": inspect.Parameter.empty,
        "alpha": None,
        "hidden": None,
        "learning_rate": None,
        "tau": None,
        "gamma": None,
        "policy_delay": None,
        "target_noise": None,
        "noise_clip": None,
        "act_high": None,
        "batch_size": None,
        "callbacks": None,
        "logger": None,
    }
