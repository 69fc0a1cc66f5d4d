"""The command `sharpwave`.

Belongs here: a module for each command with `run(arguments) -> int`, and what commands share.
"""

from sharpwave.cli.main import main

__all__ = ["main"]
