"""Sessions of the nodes that have joined a learner, with a slot for each remote actor.

The lock of the fleet guards all of it.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from sharpwave.distributed.codec import Plain, pack
from sharpwave.distributed.fleet import Weights
from sharpwave.distributed.state_codec import state_to_bytes
from sharpwave.errors import WireError

__all__ = ["Asked", "Session", "Slot"]


class Asked:
    """Weights that unrolls are asked for with, packed once for all nodes.

    Args:
        weights: The weights.
        version: Updates that they have seen.
    """

    def __init__(self, weights: Weights, version: int) -> None:
        self.version = version
        self.data = pack("weights", {"weights": weights}, {"version": version})
        self._weights = weights

    def is_of(self, weights: Weights, version: int) -> bool:
        """True if it is these weights; a run that was set back has others of the same version."""
        return version == self.version and np.array_equal(weights, self._weights)


class Slot:
    """The place of an actor, whoever fills it.

    Attributes:
        number: Index of the actor.
        life: Number of times that it was filled before; -1 before the first time.
        session: The node that fills it; None without.
        asked: Weights of the unrolls that it should make.
        state: Last state that the actor sent; None where it sent none.
        has_failed: It has given up what was asked for, until it is asked again.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.life = -1
        self.session: Session | None = None
        self.asked: deque[Asked] = deque()
        self.state: Any = None
        self.has_failed = False
        self._restarts = 0
        self._is_asked_for_state = False
        self._since = self._since_tell = math.inf
        self._to_load: bytes | None = None
        self._serial = 0

    @property
    def is_busy(self) -> bool:
        """True if an unroll will come."""
        return self.session is not None and bool(self.asked) and not self.has_failed

    @property
    def has_told(self) -> bool:
        """True unless the actor's state was asked for and has not come yet."""
        return self.session is None or not self._is_asked_for_state

    @property
    def life_of_state(self) -> int:
        """Number of times that the actor was made before, here and by its node."""
        return max(0, self.life + (self._to_load is not None)) + self._restarts

    def is_late(self, for_unroll: float, for_state: float) -> bool:
        """True if an answer has not come for so many seconds since it could be worked at."""
        now = time.monotonic()
        return (self.is_busy and now - self._since > for_unroll) or (
            not self.has_told and now - self._since_tell > for_state
        )

    def join(self, session: Session) -> None:
        """Let a node fill it, which is told at once where it stands and what was asked for."""
        self.session, self._since = session, time.monotonic()
        self.life += 1
        self._serial = 0
        self.has_failed = False
        if self._to_load is not None:
            session.say(self._to_load)
            self._to_load = None
        for asked in self.asked:
            session.ask(self.number, asked)

    def leave(self) -> None:
        """Wait for another node, whose actor draws numbers that no one before drew."""
        assert self.session is not None
        self.life += self.session.told["restarts"]
        self.session = self.state = None
        self._is_asked_for_state = False
        self._restarts = 0

    def ask(self, asked: Asked) -> None:
        """Ask for an unroll, now or when somebody comes."""
        if not self.asked:
            self._since = time.monotonic()
        self.asked.append(asked)
        if self.session is not None:
            self.session.ask(self.number, asked)

    def ask_again(self) -> None:
        """Ask for what the actor has given up."""
        self.has_failed, self._since = False, time.monotonic()
        if self.session is not None:
            for asked in self.asked:
                self.session.ask(self.number, asked)

    def ask_state(self) -> None:
        """Ask for the actor's state, if it is there."""
        if self.session is not None:
            self._is_asked_for_state, self._since_tell = True, time.monotonic()
            self.session.say(pack("tell", meta={"actor": self.number}))

    def take_state(self, state: Any, restarts: Plain) -> None:
        """Take what the actor told, and how often its node made it again.

        Raises:
            WireError: It was not asked, or told something else.
        """
        if not self._is_asked_for_state or type(restarts) is not int or restarts < 0:
            raise WireError(f"actor {self.number}: no state was asked for, got one")
        self.state, self._restarts, self._is_asked_for_state = state, restarts, False

    def load(self, state: Any, life: int, *, in_flight: bool) -> None:
        """Let the actor go on from a state, now or when somebody comes."""
        self.state = state
        if state is None:
            self.life = max(self.life, life)
            return
        data = state_to_bytes("load", state, actor=self.number, in_flight=in_flight)
        if self.session is not None:
            self.session.say(data)
        else:
            self._to_load = data
            self.life = life - 1  # whoever comes next is the one who stood there

    def take(self, version: int, serial: Plain) -> None:
        """Take an unroll that was asked for, once.

        Raises:
            WireError: It was not, or has other weights, or was taken before.
        """
        if serial != self._serial:
            raise WireError(
                f"actor {self.number}: unroll {self._serial} was expected, got {serial!r}"
            )
        if not self.asked:
            raise WireError(f"actor {self.number}: no unroll was asked for, got one")
        if version != self.asked[0].version:
            raise WireError(
                f"actor {self.number}: an unroll with weights {self.asked[0].version} was asked "
                f"for, got one with {version}"
            )
        self.asked.popleft()
        self._since = time.monotonic()
        self._serial += 1


class Session:
    """A node that has joined.

    Args:
        slots: The places of its actors.
        peer: Network address of the node.
        lock: The fleet's.

    Attributes:
        error: Why it was sent away; None where it left.
        told: Failures, restarts and lost unrolls of its actors so far.
    """

    def __init__(self, slots: list[Slot], peer: str, lock: threading.Lock) -> None:
        self.slots, self.peer = slots, peer
        self.error: Exception | None = None
        self.told = {"failures": 0, "restarts": 0, "lost": 0}
        self._changed = threading.Condition(lock)
        self._outbox: deque[bytes] = deque()
        self._has: Asked | None = None
        self._over = False

    def slot_of(self, number: Plain) -> Slot:
        """The place of one of its actors.

        Raises:
            WireError: It is another node's.
        """
        for slot in self.slots:
            if slot.number == number:
                return slot
        raise WireError(f"actors must be {[slot.number for slot in self.slots]}, got {number!r}")

    def ask(self, number: int, asked: Asked) -> None:
        """Ask an actor for an unroll; weights are sent where the node has others."""
        if self._has is not asked:
            self._has = asked
            self.say(asked.data)
        self.say(pack("ask", meta={"actor": number, "version": asked.version}))

    def say(self, data: bytes) -> None:
        """Send a message, in turn."""
        self._outbox.append(data)
        self._changed.notify()

    def end(self) -> None:
        """Send nothing after what is said."""
        self._over = True
        self._changed.notify()

    def tell(self, meta: Mapping[str, Plain]) -> None:
        """Take what a node says of its actors.

        Raises:
            WireError: A count is none.
        """
        counts: dict[str, Any] = {name: meta.get(name, 0) for name in self.told}
        for name, count in counts.items():
            if type(count) is not int or not 0 <= count < 2**53:
                raise WireError(f"{name} must be a count, got {count!r}")
        self.told = counts

    def outgoing(self) -> Iterator[bytes]:
        """The messages to the node, until its end; without the lock."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._outbox or self._over)
                if not self._outbox or self.error is not None:
                    return
                data = self._outbox.popleft()
            yield data
