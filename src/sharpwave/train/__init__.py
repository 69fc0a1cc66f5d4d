"""Loops, callbacks, loggers, checkpoints and reports: everything around a run."""
