"""The command `sharpwave`."""

from sharpwave.cli.main import main

__all__ = ["main"]
