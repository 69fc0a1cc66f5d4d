"""Prefetching of replay batches in a background thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from sharpwave.buffers.views import View
from sharpwave.types import BatchDict

__all__ = ["Prefetch"]


class Prefetch:
    """A thread that draws the batches of the next requests, as long as these stay the same.

    Args:
        draw: Draws one, of a size, a view, and with ids or not.
        depth: Batches that wait at most.
    """

    def __init__(self, draw: Callable[[int, View | None, bool], BatchDict], depth: int) -> None:
        self._draw, self._depth = draw, depth
        self._wanted: tuple[int, View | None, bool] | None = None
        self._ready: deque[BatchDict | Exception] = deque()
        self._changed = threading.Condition()
        self._over = False
        self._thread: threading.Thread | None = None

    def take(self, batch_size: int, view: View | None, indices: bool) -> BatchDict:
        """The next batch.

        Raises:
            Exception: Whatever was raised in drawing it.
        """
        wanted = (batch_size, view, indices)
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="sharpwave prefetch", daemon=True
                )
                self._thread.start()
            if wanted != self._wanted:
                self._wanted = wanted
                self._ready.clear()
                self._changed.notify_all()
            while not self._ready:
                if self._over:
                    raise ValueError("the replay is closed")
                self._changed.wait()
            batch = self._ready.popleft()
            self._changed.notify_all()
        if isinstance(batch, Exception):
            raise batch
        return batch

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._over or (self._wanted and len(self._ready) < self._depth)
                )
                if self._over or self._wanted is None:
                    return
                wanted: Any = self._wanted
            try:
                drawn: BatchDict | Exception = self._draw(*wanted)
            except Exception as error:
                drawn = error
            with self._changed:
                if wanted == self._wanted:
                    self._ready.append(drawn)
                    if isinstance(drawn, Exception):
                        self._wanted = None  # until somebody asks again
                    self._changed.notify_all()

    def stop(self) -> None:
        """End the thread."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
