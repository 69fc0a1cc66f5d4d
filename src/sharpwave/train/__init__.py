"""Around an algorithm: loops, callbacks, loggers, checkpoints, evaluation, run folders."""
