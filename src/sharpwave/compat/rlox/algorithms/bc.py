"""`sharpwave.BC` with rlox's arguments."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, ClassVar

from sharpwave.algorithms import bc
from sharpwave.compat.rlox.offline.base import ByPosition

__all__ = ["BC", "BCConfig"]


@dataclass(frozen=True, kw_only=True)
class BCConfig(bc.BCConfig):
    """Options of BC, with rlox's defaults."""

    hidden: tuple[int, ...] = 256  # type: ignore[assignment]
    """Width of the two hidden layers, or the width of each."""
    continuous: bool | None = True
    """Whether actions are continuous."""


class BC(ByPosition, bc.BC):
    """`sharpwave.BC`, which takes its options by position too.

    Checkpoints of either class load in the other.
    """

    Config = BCConfig
    config: BCConfig
    leading_arguments: ClassVar[dict[str, Any]] = {
        "dataset": inspect.Parameter.empty,
        "obs_dim": inspect.Parameter.empty,
        "act_dim": inspect.Parameter.empty,
        "continuous": None,
        "hidden": None,
        "learning_rate": None,
        "batch_size": None,
        "callbacks": None,
        "logger": None,
    }
