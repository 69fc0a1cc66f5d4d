"""Loggers: where the numbers of a run go."""

from sharpwave.runs.loggers.base import LoggerCallback, LoggerList
from sharpwave.runs.loggers.console import ConsoleLogger
from sharpwave.runs.loggers.csv import CSVLogger
from sharpwave.runs.loggers.jsonl import JSONLLogger
from sharpwave.runs.loggers.mlflow import MLflowLogger
from sharpwave.runs.loggers.tensorboard import TensorBoardLogger
from sharpwave.runs.loggers.wandb import WandbLogger

__all__ = [
    "CSVLogger",
    "ConsoleLogger",
    "JSONLLogger",
    "LoggerCallback",
    "LoggerList",
    "MLflowLogger",
    "TensorBoardLogger",
    "WandbLogger",
]
