"""Answers of gRPC streams, taken by a thread of their own, so that no signal interrupts gRPC."""

from __future__ import annotations

import queue
import threading
from typing import Any

__all__ = ["Answers"]

LAST = 2.0
"""Seconds that a call takes at most to end once it is canceled."""


class Answers:
    """The answers of a call, in turn.

    Where Ctrl-C interrupts a thread that waits for gRPC itself, what was begun there is never
    finished: the stream cannot be read to its end, and nobody can close the channel. Whoever asks
    here waits for a queue.

    Args:
        call: A call that answers with a stream.
    """

    def __init__(self, call: Any) -> None:
        self._call = call
        self._taken: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._take, name="sharpwave answers", daemon=True)
        self._thread.start()

    def next(self) -> Any:
        """The next answer; None once the other side has hung up.

        Raises:
            grpc.RpcError: The call has failed.
        """
        found = self._taken.get()
        if found is None or isinstance(found, Exception):
            self._taken.put(found)  # for whoever asks again
        if isinstance(found, Exception):
            raise found
        return found

    def cancel(self) -> None:
        """End the call now."""
        self._call.cancel()

    def finish(self, timeout: float) -> None:
        """Wait until the other side has hung up, or so many seconds; then end the call."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            self.cancel()
            self._thread.join(LAST)

    def _take(self) -> None:
        try:
            for answer in self._call:
                self._taken.put(answer)
        except Exception as error:  # gRPC's own, of many kinds
            self._taken.put(error)
        else:
            self._taken.put(None)
