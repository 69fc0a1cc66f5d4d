"""Lines for the person at the terminal."""

import sys


def say(line: str) -> None:
    """Writes a line to whatever is standard output now, above a progress bar if there is one."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
