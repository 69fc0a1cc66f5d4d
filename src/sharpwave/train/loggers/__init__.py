"""Loggers: where the numbers of a run go."""

from sharpwave.train.loggers.base import LoggerCallback, LoggerList

__all__ = ["LoggerCallback", "LoggerList"]
