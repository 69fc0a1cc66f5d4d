"""Everything around an algorithm: configuration, loops, callbacks, loggers, checkpoints, runs."""
