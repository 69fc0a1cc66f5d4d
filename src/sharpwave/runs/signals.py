"""Signals that ask a run to stop."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def stop_on_signal(request_stop: Callable[[str], None]) -> Iterator[None]:
    """Turn SIGTERM and Ctrl-C into a request to stop at the next update boundary.

    A second signal of the same kind does what it always did. Signals reach the main thread only, so
    elsewhere this changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    previous = {number: signal.getsignal(number) for number in numbers}

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        request_stop(signal.Signals(number).name)
        signal.signal(number, previous[signal.Signals(number)] or signal.SIG_DFL)

    for number in numbers:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, previous[number] or signal.SIG_DFL)
