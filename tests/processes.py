"""Processes that tests look at and stop."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.waiting import LONG

__all__ = [
    "actors_of",
    "children",
    "command_of",
    "descendants",
    "interruptible",
    "is_running",
    "stop",
]


@contextlib.contextmanager
def interruptible(*words: str, cwd: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """A command of `sharpwave` that Ctrl-C reaches; it does not outlive the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sharpwave", *words],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Background jobs ignore interrupts, and what they start does, too.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def children(pid: int) -> list[int]:
    """The processes that a process has started; none of one that has ended."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):  # a thread that has ended meanwhile
                found += map(int, (task / "children").read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    """Those, and what they have started in turn."""
    return [one for child in children(pid) for one in (child, *descendants(child))]


def actors_of(pid: int) -> list[int]:
    """Processes of actors among them: an import may have started a compiler for a moment."""
    return [one for one in descendants(pid) if "process_actor" in command_of(one)]


def command_of(pid: int) -> str:
    """The command line of a process; nothing of one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def is_running(pid: int) -> bool:
    """True if a process is there, and not just its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def stop(pid: int) -> None:
    """Stop a process, and wait until none of its threads runs: a signal takes its time."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + LONG
    while not all(map(_is_stopped, list(Path(f"/proc/{pid}/task").iterdir()))):
        assert time.monotonic() < deadline, "it did not stop"
        time.sleep(0.001)


def _is_stopped(thread: Path) -> bool:
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except OSError:  # it has ended since it was listed
        return True
