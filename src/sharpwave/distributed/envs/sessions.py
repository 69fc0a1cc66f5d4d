"""Sessions of an environment server: a limited number, freed when their clients stay away."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sharpwave.distributed.envs.session import Session

__all__ = ["Seat", "Sessions", "SessionsFull"]


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
    """

    def __init__(
        self,
        make: Callable[[], Any],
        unmake: Callable[[Any], None],
        limit: int,
        patience: float,
    ) -> None:
        self._make, self._unmake = make, unmake
        self.limit, self.patience = limit, patience
        self._seats: dict[str, Seat] = {}
        self._n_in_making = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._sweeper: threading.Thread | None = None

    def __len__(self) -> int:
        with self._lock:
            return len(self._seats)

    def open(self, name: str | None = None) -> Seat:
        """A new session.

        Raises:
            SessionsFull: There are as many as may be.
        """
        with self._lock:
            if len(self._seats) + self._n_in_making >= self.limit or self._over.is_set():
                raise SessionsFull(f"all {self.limit} sessions are taken")
            self._n_in_making += 1
            if self._sweeper is None:
                self._sweeper = threading.Thread(
                    target=self._sweep, name="sharpwave seats", daemon=True
                )
                self._sweeper.start()
        try:
            session = Session(self._make(), name or secrets.token_hex(16))
        finally:
            with self._lock:
                self._n_in_making -= 1
        seat = Seat(session, turn=1)
        with self._lock:
            self._seats[session.name] = seat
        return seat

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
        """Free all."""
        self._over.set()
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
        for seat in seats:
            with contextlib.suppress(Exception), seat.session.held():
                self._unmake(seat.session.env)
