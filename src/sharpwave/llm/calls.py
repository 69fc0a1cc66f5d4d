"""Calls of user functions: in turn, in threads or in processes, with a timeout."""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import pickle
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooSlow
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["TOO_SLOW", "Calls", "CallsInProcesses", "CallsInThreads", "CallsInTurn", "FailedThere"]

TOO_SLOW = object()
"""Result of a call that timed out."""

Call = Callable[[], Any]


class FailedThere(RuntimeError):  # noqa: N818 - says what happened
    """A call raised in another process; the message has its traceback."""


class Calls(ABC):
    """Calls functions."""

    @abstractmethod
    def run(self, calls: Sequence[Call]) -> list[Any]:
        """Results of the calls, in order: a value, the exception that was raised, or `TOO_SLOW`.

        Functions that are `async` are awaited.
        """

    def close(self) -> None:  # noqa: B027 - those in turn have nothing to let go of
        """Let go of processes."""


class CallsInTurn(Calls):
    """Calls one after another, in the thread that asks."""

    def run(self, calls: Sequence[Call]) -> list[Any]:
        """Results of the calls, in order."""
        return [_outcome(call) for call in calls]


class CallsInThreads(Calls):
    """Calls several at a time, each in a thread.

    A call that takes too long is given up: its thread ends when the function does, or with the
    program.

    Args:
        workers: Calls at a time.
        timeout: Seconds for each; None waits for ever.
    """

    def __init__(self, workers: int, timeout: float | None) -> None:
        self._workers, self._timeout = workers, timeout

    def run(self, calls: Sequence[Call]) -> list[Any]:
        """Results of the calls, in order."""
        if len(calls) == 1:
            return [self._wait_for(calls[0])]
        with ThreadPoolExecutor(self._workers, "reward calls") as pool:
            return list(pool.map(self._wait_for, calls))

    def _wait_for(self, call: Call) -> Any:
        found: Future[Any] = Future()
        # Not one of a pool, which Python would wait for at its end.
        threading.Thread(
            target=lambda: found.set_result(_outcome(call)), name="reward", daemon=True
        ).start()
        try:
            return found.result(self._timeout)
        except TooSlow:
            return TOO_SLOW


class CallsInProcesses(Calls):
    """Calls several at a time, each in a process, which is ended where a call takes too long.

    Processes begin with the first call, import the functions by name and are kept.

    Args:
        workers: Processes.
        timeout: Seconds for each call; None waits for ever.
    """

    def __init__(self, workers: int, timeout: float | None) -> None:
        self._timeout = timeout
        self._workers = [_Worker() for _ in range(workers)]
        self._lock = threading.Lock()

    def run(self, calls: Sequence[Call]) -> list[Any]:
        """Results of the calls, in order."""
        with self._lock, ThreadPoolExecutor(len(self._workers), "reward calls") as pool:
            free = list(self._workers)

            def run_one(call: Call) -> Any:
                worker = free.pop()
                try:
                    return worker.run(call, self._timeout)
                finally:
                    free.append(worker)

            return list(pool.map(run_one, calls))

    def close(self) -> None:
        """End the processes."""
        with self._lock:
            for worker in self._workers:
                worker.end()


class _Worker:
    """One process, begun when it is needed."""

    def __init__(self) -> None:
        self._process: Any = None
        self._pipe: Connection | None = None

    def run(self, call: Call, timeout: float | None) -> Any:
        # Plain pickling: tensors go by value, and not as handles of shared memory.
        content = pickle.dumps(call)
        if self._process is None or not self._process.is_alive():
            self._begin()
        assert self._pipe is not None
        try:
            self._pipe.send_bytes(content)
            self._pipe.recv_bytes()  # what it imports first is not the function's time
            if not self._pipe.poll(timeout):
                self.end()
                return TOO_SLOW
            found, trace = pickle.loads(self._pipe.recv_bytes())  # our own process's
        except (EOFError, OSError):
            code = self._process.exitcode
            self.end()
            return FailedThere(f"its process ended{'' if code is None else f' with status {code}'}")
        return found if trace is None else FailedThere(trace)

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None

    def _begin(self) -> None:
        self.end()
        # A fork of a program with threads may find locks that nobody will ever open.
        context = multiprocessing.get_context("spawn")
        self._pipe, there = context.Pipe()
        self._process = context.Process(target=_work, args=(there,), daemon=True)
        self._process.start()
        there.close()


def _work(pipe: Connection) -> None:
    """Serve calls from a pipe in a worker process, until it closes."""
    while True:
        try:
            content = pipe.recv_bytes()
        except EOFError:
            return
        try:
            try:
                call = pickle.loads(content)
            finally:
                pipe.send_bytes(b"begun")
            answer = pickle.dumps((_awaited(call()), None))
        except Exception:
            answer = pickle.dumps((None, traceback.format_exc()))
        pipe.send_bytes(answer)


def _outcome(call: Call) -> Any:
    try:
        return _awaited(call())
    except Exception as error:
        return error


def _awaited(found: Any) -> Any:
    """The result of a function, awaited if it is `async`."""

    async def wait() -> Any:
        return await found

    return asyncio.run(wait()) if inspect.isawaitable(found) else found
