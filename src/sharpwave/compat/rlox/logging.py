"""Loggers with the constructors of rlox."""

from __future__ import annotations

from typing import Any

from sharpwave.runs import loggers
from sharpwave.runs.loggers import ConsoleLogger, LoggerCallback, TensorBoardLogger

__all__ = ["ConsoleLogger", "LoggerCallback", "TensorBoardLogger", "WandbLogger"]


class WandbLogger(loggers.WandbLogger):
    """`sharpwave.WandbLogger` with rlox's default project."""

    def __init__(self, project: str = "rlox", **init: Any) -> None:
        super().__init__(project, **init)
