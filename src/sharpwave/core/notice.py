"""Notices to the user on standard error."""

import sys

from sharpwave.printable import printable


def notice(line: str) -> None:
    """Say something in one line on standard error."""
    sys.stderr.write(f"sharpwave: {printable(line)}\n")
    sys.stderr.flush()
