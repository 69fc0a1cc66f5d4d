"""`sharpwave.IQL` with rlox's arguments."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, ClassVar

from sharpwave.algorithms import iql
from sharpwave.compat.rlox.offline.base import ByPosition

__all__ = ["IQL", "IQLConfig"]


@dataclass(frozen=True, kw_only=True)
class IQLConfig(iql.IQLConfig):
    """Options of IQL, with rlox's defaults."""

    hidden: tuple[int, ...] = 256  # type: ignore[assignment]
    """Width of the two hidden layers, or the width of each."""


class IQL(ByPosition, iql.IQL):
    """`sharpwave.IQL`, which takes its options by position too.

    Checkpoints of either class load in the other.
    """

    Config = IQLConfig
    config: IQLConfig
    leading_arguments: ClassVar[dict[str, Any]] = {
        "dataset": inspect.Parameter.empty,
        "obs_dim": inspect.Parameter.empty,
        "act_dim": inspect.Parameter.empty,
        "expectile": None,
        "temperature": None,
        "hidden": None,
        "learning_rate": None,
        "tau": None,
        "gamma": None,
        "batch_size": None,
        "callbacks": None,
        "logger": None,
    }
