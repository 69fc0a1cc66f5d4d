"""Processes that answer for environments, and what is said of one that fails."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sharpwave.core.optional import missing_library
from sharpwave.errors import EnvironmentFailed

__all__ = ["PATIENCE", "Watching", "shut_down", "shut_down_here"]

PATIENCE = 5.0
"""Seconds that workers have to close their environments before they are killed."""


class Watching(ABC):
    """Talks to one worker for each environment, and notices at once when one is lost.

    Attributes:
        parent_pipes: To each worker.
        processes: Of each worker.
        error_queue: Errors of the workers (see `sharpwave.envs.worker`).
    """

    parent_pipes: list[Any]
    processes: list[Any]
    error_queue: Any

    @abstractmethod
    def _give_up(self) -> None:
        """Close everything; no answer is awaited any more."""

    def _ask(self, command: str, data: Sequence[Any]) -> tuple[Any, ...]:
        """Answers of the workers to a command, each with data of its own."""
        with self._watching():
            for pipe, one in zip(self.parent_pipes, data, strict=True):
                pipe.send((command, one))
            answers = [pipe.recv() for pipe in self.parent_pipes]
            self._raise_if_errors(success for _, success in answers)
        return tuple(answer for answer, _ in answers)

    @contextlib.contextmanager
    def _watching(self) -> Iterator[None]:
        """Turn the loss of a worker into EnvironmentFailed."""
        try:
            yield
        except (EOFError, OSError) as error:
            dead = self._dead_worker()
            if dead is None:
                raise
            index, exit_code = dead
            self._give_up()
            trace = f"it ended with exit code {exit_code}"
            raise EnvironmentFailed(index, "its process", trace) from error

    def _dead_worker(self) -> tuple[int, int | None] | None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:  # the pipe closes a little before the process is gone
            for i, process in enumerate(getattr(self, "processes", [])):
                if not process.is_alive():
                    return i, process.exitcode
            time.sleep(0.01)
        return None

    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        n_failed = sum(not success for success in successes)
        if n_failed == 0:
            return
        reports = []
        with contextlib.suppress(queue.Empty):
            for _ in range(n_failed):
                reports.append(self.error_queue.get(timeout=PATIENCE))  # noqa: PERF401
        self._give_up()
        if not reports:
            raise EnvironmentFailed(-1, "its process", "it sent no report")
        index, doing, trace, pickled = min(reports)
        cause = _cause(pickled, trace)
        missing = missing_library(cause, "the environment")
        if missing is not None:
            raise missing from cause
        raise EnvironmentFailed(index, doing, trace) from cause


def shut_down(pipes: list[Any], processes: list[Any], patience: float) -> None:
    """Ask the workers to close, read what they still say, and kill those that stay."""
    deadline = time.monotonic() + patience
    for pipe in pipes:
        with contextlib.suppress(OSError):
            pipe.send(("close", None))
    for pipe in pipes:
        with contextlib.suppress(EOFError, OSError):
            while pipe.poll(max(deadline - time.monotonic(), 0)):
                pipe.recv_bytes()
        pipe.close()
    for process in processes:
        if process.pid is None:
            continue
        process.join(max(deadline - time.monotonic(), 0))
        if process.is_alive():
            process.kill()
            process.join()


def shut_down_here(pid: int, pipes: list[Any], processes: list[Any], patience: float) -> None:
    """Shut the workers down, but only in the process that started them."""
    if os.getpid() == pid:  # a forked process has a copy of the object, but not its workers
        shut_down(pipes, processes, patience)


def _cause(pickled: bytes | None, trace: str) -> BaseException:
    with contextlib.suppress(Exception):
        if pickled is not None and isinstance(error := pickle.loads(pickled), BaseException):
            return error
    return RuntimeError(trace.strip().rsplit("\n", 1)[-1])
