"""A fleet of actors in worker processes of this machine, with unrolls in shared memory."""

from __future__ import annotations

import math
import os
import selectors
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from sharpwave.distributed.channel import Message, read_pickle
from sharpwave.distributed.fleet import FleetStats, Unroll, Weights, waiting_states
from sharpwave.distributed.launch import ActorProcess, Launcher, end_all
from sharpwave.distributed.recipe import ActorRecipe
from sharpwave.distributed.ring import UnrollReader
from sharpwave.distributed.supervise import Lives
from sharpwave.errors import ActorFailed

__all__ = ["ProcessFleet"]

MOST_SLOTS = 8
"""Most unrolls of an actor that are under way, or that nobody has looked at."""
LOOK = 0.5
"""Seconds after which somebody who waits looks for signs of life."""
GRACE = 1.0
"""Seconds that killing takes at most, where processes did not close in time."""


class ProcessFleet:
    """Actors in processes of their own, so that environments of Python run beside each other.

    Unrolls come through shared memory, which an actor hands over by a message; weights are on a
    board in shared memory, which nobody waits for. An actor whose process ends, or gives no sign of
    life for some seconds, is started again. Processes end with this one, however it ends. The
    thread that has started the fleet last uses it; others may ask for its `stats`.

    Args:
        recipe: Recipe that makes the actors.
        lives: Lives of the actors, and how often they may fail.
        n_weights: Number of weights.
        max_in_flight: Most unrolls that are under way or wait; actors rest at that.
        in_step: Each actor makes one unroll after every `publish`, and none before the next: which
            weights an unroll has does not depend on who is faster.

    Raises:
        TypeError: The environment or the policy cannot be pickled.
    """

    def __init__(
        self,
        recipe: ActorRecipe,
        lives: Lives,
        n_weights: int,
        *,
        max_in_flight: int,
        in_step: bool = False,
    ) -> None:
        n_actors = len(lives.numbers)
        n_slots = 1 if in_step else min(max_in_flight, MOST_SLOTS)
        self._launcher = Launcher(recipe, n_actors, n_weights, n_slots)
        self._lives, self._max_in_flight, self._in_step = lives, max_in_flight, in_step
        self._actors: list[ActorProcess | None] = [None] * n_actors
        self._saved: list[tuple[Any, bool] | None] = [None] * n_actors
        self._ready: deque[Unroll] = deque()
        # In step: what is to be published once all have made an unroll of the last, and who has
        # not.
        self._asked: deque[tuple[Weights, int]] = deque()
        self._due: set[int] = set()
        self._given_up: set[int] = set()
        self._selector = selectors.DefaultSelector()
        self._received_bytes = 0
        self._rests, self._stops = True, False
        self._error: BaseException | None = None
        self._looked = 0.0
        self._owner = threading.get_ident()
        self._finalizer = weakref.finalize(
            self, end_all, os.getpid(), self._actors, self._launcher.signals, 5.0
        )

    def start(self, weights: Weights, version: int) -> None:
        """Let the actors begin, or go on after `pause`, with these weights.

        In step they wait for the first `publish`.

        Raises:
            RuntimeError: The fleet was stopped.
        """
        if self._stops:
            raise RuntimeError("the fleet is stopped")
        self._owner = threading.get_ident()
        if not self._rests:
            return
        self._rests = self._launcher.signals.rests = False
        if not self._in_step:
            self._launcher.board.write(weights, version)
        for number, actor in enumerate(self._actors):
            if actor is None:
                if number in self._given_up:
                    self._lives.revive(number)
                self._start(number)
            elif number in self._due and not actor.given:  # what a rest kept it from
                actor.go()
        self._given_up.clear()
        self._grant()

    def publish(self, weights: Weights, version: int) -> None:
        """Give the weights of the unrolls that begin from now on."""
        if not self._in_step:
            self._launcher.board.write(weights, version)
            return
        self._asked.append((weights, version))
        self._grant()

    def receive(self, timeout: float) -> Unroll | None:
        """The oldest unroll; None if there was none in so many seconds.

        Raises:
            Exception: The error of an actor that is not started again, as it was raised there; the
                actors rest then until `start`.
        """
        self._pump(0.0)
        self._wait(lambda: bool(self._ready) or self._error is not None, timeout)
        self._raise_error()
        if not self._ready:
            return None
        unroll = self._ready.popleft()
        self._received_bytes += unroll.nbytes
        self._grant()
        return unroll

    def pause(self, timeout: float = math.inf) -> None:
        """Wait until all actors rest between two unrolls, or so many seconds."""
        deadline = time.monotonic() + timeout
        if not self._rests:
            # In step, what was asked for comes first, so that a run does not depend on pauses.
            self._wait(lambda: self._error is not None or not (self._due or self._asked), timeout)
            self._rest()
        busy = [actor for actor in self._living() if actor.given]
        for actor in busy:
            actor.rested = False
            actor.channel.send(b"r")
        self._wait(
            lambda: all(one.rested or one is not self._actors[one.number] for one in busy),
            deadline - time.monotonic(),
        )

    def stats(self) -> FleetStats:
        """Counts of actors, unrolls, failures and received bytes; for other threads, of before."""
        if threading.get_ident() == self._owner:
            self._pump(0.0)
        given = [len(actor.given) for actor in self._living()]
        busy = sum(map(bool, given))
        counts = self._lives.counts()
        return FleetStats(
            actors=len(self._actors),
            alive=len(given),  # who has ended since was started again, or will be in a moment
            asked=sum(given) - busy + len(self._asked) * len(self._actors),
            busy=busy,
            waiting=len(self._ready),
            failures=counts["failures"],
            restarts=counts["restarts"],
            lost=counts["lost"],
            received_bytes=self._received_bytes,
        )

    def state_dict(self) -> dict[str, Any]:
        """State of the actors at rest, and waiting unrolls; None for actors that never began.

        Raises:
            RuntimeError: The fleet was stopped.
        """
        if self._stops:
            raise RuntimeError("the fleet is stopped")
        self.pause()
        asked: dict[int, ActorProcess] = {}

        def have_told() -> bool:
            for actor in self._living():
                if asked.get(actor.number) is not actor:  # also one that was started meanwhile
                    asked[actor.number], actor.told = actor, None
                    actor.channel.send(b"t")
            return all(actor.told is not None for actor in self._living())

        self._wait(lambda: self._error is not None or have_told())
        self._raise_error()
        saved = [None if one is None else one[0] for one in self._saved]
        return {
            "actors": [
                saved[number] if actor is None else actor.told
                for number, actor in enumerate(self._actors)
            ],
            "lives": list(self._lives.numbers),
            "ready": waiting_states(self._ready),
        }

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool) -> None:
        """Go on from `state_dict`, that of a fleet of any kind.

        Args:
            state: State that `state_dict` returned.
            in_flight: True if the environments are like those of then and continue their episodes.
                Otherwise new episodes start, and what waited is left out.
        """
        self.pause()
        in_flight = in_flight and len(state["actors"]) == len(self._actors)
        self._ready.clear()
        self._asked.clear()
        # Another number of actors: those that are new begin as they were made.
        for number, told in enumerate(state["actors"][: len(self._actors)]):
            actor = self._actors[number]
            self._saved[number] = None if told is None else (told, in_flight)
            if actor is not None and told is not None:
                actor.load(told, in_flight=in_flight)
        if in_flight:
            self._lives.numbers[:] = map(int, state["lives"])
            self._ready.extend(map(Unroll.of_state, state["ready"]))

    def stop(self, timeout: float = 5.0) -> None:
        """End the processes; those that do not close in time are killed."""
        self._stops, self._rests = True, True
        self._finalizer.detach()
        end_all(os.getpid(), self._actors, self._launcher.signals, max(0.0, timeout - GRACE))
        self._actors[:] = [None] * len(self._actors)
        self._selector.close()

    # What goes on inside

    def _living(self) -> list[ActorProcess]:
        return [actor for actor in self._actors if actor is not None]

    def _rest(self) -> None:
        self._rests = self._launcher.signals.rests = True

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _wait(self, is_done: Callable[[], bool], timeout: float = math.inf) -> None:
        """Take in what actors say until something is so, or time is over."""
        deadline = time.monotonic() + timeout
        while not is_done() and not self._stops:
            left = min(LOOK, deadline - time.monotonic())
            if left < 0:
                return
            self._pump(left)

    def _pump(self, timeout: float) -> None:
        """Take in what actors say, and look for signs of life."""
        if self._stops:
            return
        for key, _ in self._selector.select(timeout):
            actor: ActorProcess = key.data
            if actor is not self._actors[actor.number]:
                continue  # it ended in this round
            if key.fd != actor.channel.fileno():  # its process has ended; what it said counts
                while self._hear(actor):
                    pass
                self._lost(actor)
            elif not self._hear(actor):
                self._lost(actor)
        now = time.monotonic()
        if now - self._looked > LOOK:
            self._looked = now
            for actor in self._living():
                if (why := actor.why_dead()) is not None:
                    actor.error = ActorFailed(actor.number, why)
                    self._lost(actor)

    def _hear(self, actor: ActorProcess) -> bool:
        """Take in a message of an actor; False where there is none and will be none."""
        message = actor.channel.receive(waits=False)
        if message is None:
            return False
        self._take(actor, message)
        return True

    def _take(self, actor: ActorProcess, message: Message) -> None:
        kind, numbers, descriptor = message
        if kind == b"D" and actor.reader is not None:
            slot, version, *counts = numbers
            unroll = actor.reader.read(slot, tuple(counts), actor.number, version)  # type: ignore[arg-type]
            actor.take_back(slot)
            self._lives.succeeded(actor.number)
            self._ready.append(unroll)
            self._due.discard(actor.number)
            self._grant()
        elif kind == b"U":
            actor.take_back(numbers[0])
        elif kind == b"R":
            actor.rested = True
        elif descriptor is not None and kind == b"F":
            if actor.form is None:
                actor.form = read_pickle(descriptor)
                os.close(descriptor)
            else:
                actor.reader, actor.form = UnrollReader(actor.form, descriptor), None
        elif descriptor is not None and kind == b"T":
            actor.told = read_pickle(descriptor)
            os.close(descriptor)
        elif descriptor is not None and kind == b"E":
            actor.take_report(descriptor)

    def _start(self, number: int) -> None:
        """Start the process of an actor, or count that it could not be."""
        life = self._lives.numbers[number]
        try:
            actor = self._launcher.start(number, life)
        except OSError as error:
            self._failed(number, error, lost=0)
            return
        self._actors[number] = actor
        self._selector.register(actor.channel, selectors.EVENT_READ, actor)
        if actor.sentinel is not None:
            self._selector.register(actor.sentinel, selectors.EVENT_READ, actor)
        saved, self._saved[number] = self._saved[number], None
        if saved is not None:
            actor.load(saved[0], in_flight=saved[1])
        if number in self._due and not self._rests:  # otherwise `start` asks for it
            actor.go()

    def _lost(self, actor: ActorProcess) -> None:
        """Bury an actor, and start it again."""
        error = actor.failure()
        self._selector.unregister(actor.channel)
        if actor.sentinel is not None:
            self._selector.unregister(actor.sentinel)
        actor.end()
        self._actors[actor.number] = None
        self._failed(actor.number, error, lost=int(bool(actor.given)))

    def _failed(self, number: int, error: BaseException, *, lost: int) -> None:
        if self._lives.failed(number, error, lost=lost):
            self._start(number)
            self._grant()
        else:
            self._error = error
            self._given_up.add(number)
            self._rest()

    def _grant(self) -> None:
        """Ask for as many unrolls as may be under way."""
        if self._rests:
            return
        if self._in_step:
            if self._asked and not self._due:
                self._launcher.board.write(*self._asked.popleft())
                self._due = set(range(len(self._actors)))
                for actor in self._living():
                    actor.go()
            return
        while True:
            living = [actor for actor in self._living() if actor.free]
            under_way = sum(len(actor.given) for actor in self._living())
            if not living or under_way + len(self._ready) >= self._max_in_flight:
                return
            min(living, key=lambda actor: len(actor.given)).go()
