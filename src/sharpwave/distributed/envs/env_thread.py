"""Thread that calls environments of Python, so that one that hangs can be left behind."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from sharpwave.distributed.hanging import ONE_LOOK, which_waits

__all__ = ["EnvLate", "EnvThread"]

T = TypeVar("T")
_Answer = tuple[Any, BaseException | None]


class EnvLate(TimeoutError):  # noqa: N818 - says what happened
    """Environments did not come back in time, or nobody waits for them any more.

    Args:
        env_index: Index of the environment that is waited for; 0 where it is not known.
        trace: The stack of the thread that waits, and the reason.
    """

    def __init__(self, env_index: int, trace: str) -> None:
        super().__init__(trace.rstrip().rpartition("\n")[2])
        self.env_index, self.trace = env_index, trace


class EnvThread:
    """Calls functions that may wait for environments, one at a time, with a timeout.

    The thread begins with the first call, and ends with this object.

    Args:
        timeout: Seconds that a call may take.

    Attributes:
        is_late: True once a call did not come back; no more is called then.
    """

    def __init__(self, timeout: float) -> None:
        self.is_late = False
        self._timeout = timeout
        self._work: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[_Answer | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        weakref.finalize(self, self._work.put, None)

    def call(self, function: Callable[[], T]) -> T:
        """The result of a function.

        Raises:
            EnvLate: It did not come back in time.
            Exception: What it raised.
        """
        self._begin()
        if self.is_late:
            raise EnvLate(0, "TimeoutError: the environments did not come back before")
        self._work.put(function)
        answer = self._answer()
        if answer is None:
            self.is_late = True
            assert self._thread is not None
            raise EnvLate(*which_waits(self._thread.ident or 0, self._timeout))
        result, error = answer
        try:
            if error is not None:
                raise error
            return result  # type: ignore[no-any-return]
        finally:
            del answer, error  # an error must not keep itself, and with it the thread

    def give_up(self) -> None:
        """Let nobody wait for a call that is under way."""
        self._answers.put(None)

    def end(self, last: Callable[[], object], timeout: float = 0.0) -> bool:
        """Call a last function, now or once what is under way comes back; return True if it has."""
        self._begin()
        done = threading.Event()

        def finish() -> None:
            try:
                last()
            finally:
                done.set()

        self._work.put(finish)
        self._work.put(None)
        return done.wait(timeout)

    def _answer(self) -> _Answer | None:
        """The result of a call; None where there is none in time, or nobody should wait."""
        waited = 0.0
        while waited < self._timeout:
            # A process that was stopped for a while must not blame environments for it.
            seconds = min(ONE_LOOK, self._timeout - waited)
            try:
                return self._answers.get(timeout=seconds)
            except queue.Empty:
                waited += seconds
        return None

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=_run,
                args=(self._work, self._answers),
                name="sharpwave environments",
                daemon=True,
            )
            self._thread.start()


def _run(
    work: queue.SimpleQueue[Callable[[], Any] | None],
    answers: queue.SimpleQueue[_Answer | None],
) -> None:
    # Neither the function nor its answer is kept until the next one comes.
    while _done(work.get(), answers):
        pass


def _done(function: Callable[[], Any] | None, answers: queue.SimpleQueue[_Answer | None]) -> bool:
    if function is None:
        return False
    try:
        answers.put((function(), None))
    except BaseException as error:  # raised where it is waited for
        answers.put((None, error))
    return True
