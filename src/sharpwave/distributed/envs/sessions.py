"""Sessions of an environment server: a limited number, freed when their clients stay away."""

from __future__ import annotations

import contextlib
import math
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sharpwave.distributed.envs.env_thread import EnvThread
from sharpwave.distributed.envs.session import Session

__all__ = ["Seat", "Sessions", "SessionsFull"]

_LETTING_GO = 3.0
"""Seconds that steps under way, and environments that close, are waited for."""


class SessionsFull(RuntimeError):  # noqa: N818 - says what happened
    """All sessions are taken."""


@dataclass(eq=False)
class Seat:
    """A session and whose turn it is.

    Attributes:
        session: The session.
        turn: Counts the connections that had it; only the latest one has it now.
        free_at: When it is given up, in seconds of `time.monotonic`; None while it is played.
    """

    session: Session
    turn: int = 0
    free_at: float | None = None


class Sessions:
    """Opens, finds and frees sessions.

    Args:
        make: Makes the environments of a session.
        unmake: Gets them back.
        limit: Sessions at a time.
        patience: Seconds that a session waits for a client whose connection was lost.
        step_timeout: Seconds that environments may take for a step, a reset, or to be made.
        abandon: Gets environments that did not come back; they are left behind.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        unmake: Callable[[Any], None],
        limit: int,
        patience: float,
        step_timeout: float = math.inf,
        abandon: Callable[[Any], None] = lambda _: None,
    ) -> None:
        self._make, self._unmake, self._abandon = make, unmake, abandon
        self.limit, self.patience, self._step_timeout = limit, patience, step_timeout
        self._seats: dict[str, Seat] = {}
        self._in_making: set[EnvThread] = set()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._sweeper: threading.Thread | None = None

    def __len__(self) -> int:
        with self._lock:
            return len(self._seats)

    def open(self, name: str | None = None) -> Seat:
        """A new session.

        Raises:
            EnvLate: The environments were not made in time.
            SessionsFull: There are as many as may be.
        """
        thread = EnvThread(self._step_timeout)
        with self._lock:
            if len(self._seats) + len(self._in_making) >= self.limit or self._over.is_set():
                raise SessionsFull(f"all {self.limit} sessions are taken")
            self._in_making.add(thread)
            if self._sweeper is None:
                self._sweeper = threading.Thread(
                    target=self._sweep, name="sharpwave seats", daemon=True
                )
                self._sweeper.start()
        try:
            session = Session(self._made(thread), name or secrets.token_hex(16), thread)
        finally:
            with self._lock:
                self._in_making.discard(thread)
        seat = Seat(session, turn=1)
        with self._lock:
            is_closed = self._over.is_set()
            if not is_closed:
                self._seats[session.name] = seat
        if is_closed:
            self._free([seat])
            raise SessionsFull("the server is closing")
        return seat

    def _made(self, thread: EnvThread) -> Any:
        made: list[Any] = []
        try:
            thread.call(lambda: made.append(self._make()))
        except BaseException:
            thread.end(lambda: [self._unmake(env) for env in made])
            raise
        return made[0]

    def find(self, name: str) -> Seat | None:
        """The session of that name, for a client that comes back; None where it is gone."""
        with self._lock:
            seat = self._seats.get(name)
            if seat is not None:
                seat.turn += 1
                seat.free_at = None
            return seat

    def leave(self, seat: Seat, turn: int, patience: float | None = None) -> None:
        """End the turn of a connection.

        Args:
            seat: Seat that it had.
            turn: Its turn; nothing happens where another one has begun.
            patience: Seconds that the session waits for its client; that of all if None.
        """
        wait = self.patience if patience is None else patience
        with self._lock:
            if seat.turn != turn or seat.session.name not in self._seats:
                return
            seat.free_at = time.monotonic() + wait
        if wait <= 0:
            self._free_late()

    def close(self) -> None:
        """Free all; of those that do not come back, nobody waits for longer than some seconds."""
        self._over.set()
        with self._lock:
            in_making = list(self._in_making)
        for thread in in_making:
            thread.give_up()
        if self._sweeper is not None:
            self._sweeper.join()
        with self._lock:
            seats, self._seats = list(self._seats.values()), {}
        self._free(seats)

    def _sweep(self) -> None:
        while not self._over.wait(max(0.02, min(0.2, self.patience / 4))):
            self._free_late()

    def _free_late(self) -> None:
        now = time.monotonic()
        with self._lock:
            late = [
                seat
                for seat in self._seats.values()
                if seat.free_at is not None and seat.free_at <= now
            ]
            for seat in late:
                del self._seats[seat.session.name]
        self._free(late)

    def _free(self, seats: list[Seat]) -> None:
        until = time.monotonic() + _LETTING_GO
        for seat in seats:
            with contextlib.suppress(Exception):
                seat.session.end(self._unmake, self._abandon, until)
