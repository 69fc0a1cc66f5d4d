"""Runs: what goes on around a loop until it is done or stopped.

Belongs here: what goes on around any loop: counts, callbacks, loggers, recorder, evaluation. It
knows no environment.
"""
