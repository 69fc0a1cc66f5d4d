"""Timeouts for environments that hang: seconds since the last step, and the stack of the thread."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from sharpwave.errors import ActorFailed

__all__ = ["Pulse", "Silence", "in_time", "kill_processes", "which_waits"]

ONE_LOOK = 1.0
"""Most seconds of silence that one look counts: whoever looks may have stood still too."""

Made = TypeVar("Made")


class Silence:
    """Seconds for which a counter has stood still, as far as anybody looked."""

    def __init__(self) -> None:
        self._seen: int | None = None
        self._seconds, self._looked = 0.0, time.monotonic()

    def seconds(self, count: int) -> float:
        """Look at the counter; return for how long it has had this value."""
        now = time.monotonic()
        self._seconds += min(now - self._looked, ONE_LOOK)
        self._looked = now
        if count != self._seen:
            self._seen, self._seconds = count, 0.0
        return self._seconds


class Pulse:
    """Lets others see whether a thread still waits for the same step of its environments.

    Args:
        timeout: Seconds that environments may take for a step, a reset, or to be made.

    Attributes:
        waits: True while the thread waits for environments.
    """

    def __init__(self, timeout: float) -> None:
        self.waits = False
        self._timeout = timeout
        self._beats = 0
        self._thread = 0
        self._silence = Silence()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Inside, this thread waits for environments."""
        self._thread = threading.get_ident()
        self._beats += 1
        self.waits = True
        try:
            yield
        finally:
            self.waits = False

    def beat(self) -> None:
        """The environments came back, and step again."""
        self._beats += 1

    def failure(self, actor: int) -> ActorFailed | None:
        """Error, with the stack, if the thread has waited for too long; None otherwise."""
        seconds = self._silence.seconds(self._beats)
        if not self.waits or seconds <= self._timeout:
            return None
        return ActorFailed(actor, _where(self._thread, self._timeout))


def in_time(make: Callable[[], Made], timeout: float, actor: int) -> Made:
    """Call a function that may wait for environments, with a timeout; return its result.

    Args:
        make: The function; a thread calls it, which is left behind where it does not come back.
        timeout: Seconds that it may take.
        actor: For whom it is.

    Raises:
        ActorFailed: It did not come back.
    """
    made: list[Made] = []
    raised: list[BaseException] = []

    def call() -> None:
        try:
            made.append(make())
        except BaseException as error:  # raised where it is waited for
            raised.append(error)

    thread = threading.Thread(target=call, name="sharpwave making", daemon=True)
    thread.start()
    thread.join(timeout)
    if raised:
        raise raised[0]
    if not made:
        raise ActorFailed(actor, _where(thread.ident or 0, timeout))
    return made[0]


def kill_processes(env: Any) -> None:
    """Kill the processes of environments that do not come back: whoever waits for them then does.

    Args:
        env: A vector environment; one without processes is left as it is.
    """
    processes = getattr(getattr(env, "unwrapped", env), "processes", None)
    for process in processes if isinstance(processes, list | tuple) else ():
        with contextlib.suppress(Exception):  # those of others may be no such processes
            process.kill()


def which_waits(thread: int, seconds: float) -> tuple[int, str]:
    """The index of the environment that a thread waits for, 0 if unknown, and the thread's stack.

    Args:
        thread: Identifier of the thread.
        seconds: Seconds that it has waited, for the last line.
    """
    from gymnasium.vector import AsyncVectorEnv  # which native actors do without

    from sharpwave.envs.python import PythonVectorEnv

    frame = sys._current_frames().get(thread)
    stack = "" if frame is None else "".join(traceback.format_stack(frame))
    index: int | None = None
    while frame is not None:
        # The vector environment is in the midst of a loop over its environments.
        local = frame.f_locals
        if isinstance(local.get("self"), PythonVectorEnv):
            index = local.get("i", index)
        elif isinstance(local.get("self"), AsyncVectorEnv):
            index = local.get("env_idx", index)
        frame = frame.f_back
    which = "an environment" if index is None else f"environment {index}"
    return index or 0, f"{stack}TimeoutError: {which} did not come back within {seconds:g} s"


def _where(thread: int, seconds: float) -> str:
    """The stack of a thread that waits for environments, and for which of them."""
    return which_waits(thread, seconds)[1]
