"""Loggers: where the numbers of a run go."""

from sharpwave.train.loggers.base import LoggerCallback, LoggerList
from sharpwave.train.loggers.console import ConsoleLogger
from sharpwave.train.loggers.csv import CSVLogger
from sharpwave.train.loggers.jsonl import JSONLLogger
from sharpwave.train.loggers.mlflow import MLflowLogger
from sharpwave.train.loggers.tensorboard import TensorBoardLogger
from sharpwave.train.loggers.wandb import WandbLogger

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
