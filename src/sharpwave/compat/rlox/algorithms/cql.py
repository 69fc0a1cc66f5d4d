"""`sharpwave.CQL` with rlox's arguments."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, ClassVar

from sharpwave.algorithms import cql
from sharpwave.compat.rlox.offline.base import ByPosition

__all__ = ["CQL", "CQLConfig"]


@dataclass(frozen=True, kw_only=True)
class CQLConfig(cql.CQLConfig):
    """Options of CQL, with rlox's defaults."""

    hidden: tuple[int, ...] = 256  # type: ignore[assignment]
    """Width of the two hidden layers, or the width of each."""


class CQL(ByPosition, cql.CQL):
    """`sharpwave.CQL`, which takes its options by position too.

    Checkpoints of either class load in the other.
    """

    Config = CQLConfig
    config: CQLConfig
    leading_arguments: ClassVar[dict[str, Any]] = {
        "dataset": inspect.Parameter.empty,
        "obs_dim": inspect.Parameter.empty,
        "act_dim": inspect.Parameter.empty,
        "cql_alpha": None,
        "n_random_actions": None,
        "auto_alpha": None,
        "cql_target_value": None,
        "hidden": None,
        "learning_rate": None,
        "tau": None,
        "gamma": None,
        "batch_size": None,
        "auto_entropy": None,
        "target_entropy": None,
        "callbacks": None,
        "logger": None,
    }
