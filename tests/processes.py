"""Processes that tests stop."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

__all__ = ["stop"]


def stop(pid: int) -> None:
    """Stop a process, and wait until none of its threads runs: a signal takes its time."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + 30
    while not all(map(_is_stopped, Path(f"/proc/{pid}/task").iterdir())):
        assert time.monotonic() < deadline, "it did not stop"
        time.sleep(0.001)


def _is_stopped(thread: Path) -> bool:
    return (thread / "stat").read_text().rpartition(")")[2].split()[0] in "Tt"
