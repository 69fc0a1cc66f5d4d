"""Waiting for what is to happen, on machines that are busy with other things.

A limit is there so that a test ends which would hang; it says nothing about how fast anything is.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

__all__ = ["LONG", "interrupted", "receive_until", "wait_for", "without_hanging"]

LONG = 120.0
"""Seconds in which everything happens that happens at all."""


def wait_for(condition: Callable[[], object], seconds: float = LONG) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@contextmanager
def without_hanging(seconds: float = LONG / 4) -> Iterator[None]:
    """Inside, nobody waits for something that never comes, nor for a deadline beyond this one."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds, "somebody was waited for"


@contextmanager
def interrupted(seconds: float = 0.3) -> Iterator[None]:
    """Inside, Ctrl-C comes after so many seconds to whoever still waits there."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    except KeyboardInterrupt:
        return
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    raise AssertionError("nobody waited there")


def receive_until(
    fleet: Any, unrolls: list[Any], condition: Callable[[], bool], seconds: float = LONG
) -> None:
    """Take the unrolls of a fleet, into a list, until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        unroll = fleet.receive(0.01)
        unrolls.extend([] if unroll is None else [unroll])
