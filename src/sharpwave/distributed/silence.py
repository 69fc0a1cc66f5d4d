"""Limit on the silence of clients in the midst of their calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

__all__ = ["SilenceWatch"]


class SilenceWatch:
    """Ends calls whose clients have been silent for too long.

    Where this process stands still itself, what clients say meanwhile is not heard: that time does
    not count.

    Args:
        silence: Seconds that a client may take for its next message, or to read an answer.
    """

    def __init__(self, silence: float) -> None:
        self._silence, self._every = silence, min(0.5, silence / 4)
        # Seconds for which somebody has looked, and when that was.
        self._looked = 0.0, time.monotonic()
        # Every message of every call passes here: single operations on a dict need no lock.
        self._waiting: dict[object, tuple[Any, float]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sharpwave watch", daemon=True)
        self._thread.start()

    def messages(self, context: Any, requests: Iterator[Any]) -> Iterator[Any]:
        """The messages of a client, each of which comes in time."""
        wait = object()  # a call may wait for a message and for an answer to be taken
        while True:
            self._waiting[wait] = context, self._now() + self._silence
            try:
                message = next(requests)
            except StopIteration:
                return
            finally:
                del self._waiting[wait]
            yield message

    def answers(self, context: Any, answers: Iterator[Any]) -> Iterator[Any]:
        """The answers to a client, each of which it takes in time."""
        wait = object()
        for answer in answers:
            self._waiting[wait] = context, self._now() + self._silence
            try:
                yield answer
            finally:
                del self._waiting[wait]

    def stop(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join()

    def _now(self) -> float:
        """Seconds for which this process has run, as far as anybody looked."""
        seconds, looked = self._looked
        return seconds + min(time.monotonic() - looked, 2 * self._every)

    def _run(self) -> None:
        while not self._over.wait(self._every):
            now = self._now()
            self._looked = now, time.monotonic()
            late = [context for context, end in list(self._waiting.values()) if end < now]
            for context in late:
                context.cancel()
