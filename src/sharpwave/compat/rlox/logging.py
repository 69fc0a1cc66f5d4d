"""Loggers with the constructors of rlox."""

from __future__ import annotations

from typing import Any

from sharpwave.runs import loggers
from sharpwave.runs.loggers import LoggerCallback, TensorBoardLogger

__all__ = ["ConsoleLogger", "LoggerCallback", "TensorBoardLogger", "WandbLogger"]


class ConsoleLogger(loggers.ConsoleLogger):
    """`sharpwave.ConsoleLogger` with rlox's interval."""

    def __init__(self, log_interval: int = 1000) -> None:
        super().__init__(log_interval)


class WandbLogger(loggers.WandbLogger):
    """`sharpwave.WandbLogger` with rlox's default project."""

    def __init__(self, project: str = "rlox", **init: Any) -> None:
        super().__init__(project, **init)
