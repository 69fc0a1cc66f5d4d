"""Threads that carry out the calls of a server, and that nobody waits for when a program ends."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, TypeVar

__all__ = ["CallThreads"]

T = TypeVar("T")
_Work = tuple["Future[Any]", Callable[[], Any]]


class CallThreads(Executor):
    """Threads that carry out calls, at most so many at a time.

    The interpreter waits for those of `ThreadPoolExecutor` before it ends, and before anything is
    told that it ends: for ever, where a client stays connected.

    Args:
        most: Most calls at a time; later ones wait.
        name: Name of the threads.

    Example:
        >>> with CallThreads(2, "adding") as threads:
        ...     threads.submit(sum, [1, 2, 3]).result()
        6
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._is_over = False

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Carry out a call, as soon as a thread is free.

        Raises:
            RuntimeError: It was shut down.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._is_over:
                raise RuntimeError(f"{self._name} takes no more calls")
            self._work.put((future, partial(function, *args, **kwargs)))
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
                name = f"{self._name} {len(self._threads)}"
                self._threads.append(threading.Thread(target=self._run, name=name, daemon=True))
                self._threads[-1].start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls.

        Args:
            wait: Wait until those under way have ended.
            cancel_futures: Leave out those that have not begun.
        """
        with self._lock:
            self._is_over = True
            while cancel_futures:
                try:
                    work = self._work.get_nowait()
                except queue.Empty:
                    break
                if work is not None:
                    work[0].cancel()
            self._work.put(None)
        for thread in self._threads if wait else ():
            thread.join()

    def _run(self) -> None:
        while _done(self._next()):
            pass
        self._work.put(None)  # for the next thread

    def _next(self) -> _Work | None:
        try:
            return self._work.get_nowait()
        except queue.Empty:
            self._idle.release()
            return self._work.get()


def _done(work: _Work | None) -> bool:
    """Carry out a call; False where there are no more."""
    if work is None:
        return False
    future, call = work
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(call())
        except BaseException as error:  # raised where the result is asked for
            future.set_exception(error)
    return True
