"""Runs: training loops, callbacks, loggers, checkpoints, evaluation and reports."""
