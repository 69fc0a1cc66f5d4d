"""A fleet of actors in threads of this process (multithreading)."""

from __future__ import annotations

import contextlib
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from sharpwave.distributed.actors import FleetActor
from sharpwave.distributed.fleet import FleetStats, Unroll, Weights, waiting_states
from sharpwave.distributed.hanging import Pulse, kill_processes
from sharpwave.distributed.supervise import Lives
from sharpwave.errors import ActorFailed

__all__ = ["ThreadFleet"]

LOOK = 0.5
"""Seconds after which somebody who waits looks for actors that hang."""
LAST = 1.0
"""Seconds that threads have to end once the processes that they wait for are killed."""


class ThreadFleet:
    """Actors in threads: native environments step without the interpreter, beside each other.

    Environments and policies of Python take turns, since one thread at a time interprets. An actor
    that fails is made again, with new environments. So is one whose environments do not come back,
    in another thread: the one that waits cannot be ended, and is left behind.

    Args:
        make: Makes an actor of its number and of how often it was made before.
        lives: Lives of the actors, and how often they may fail.
        max_in_flight: Most unrolls that are under way or wait; actors rest at that.
        in_step: Each actor makes one unroll after every `publish`, and none before the next: which
            weights an unroll has does not depend on who is faster.
        step_timeout: Seconds that environments may take for a step, a reset, or to be made.
    """

    def __init__(
        self,
        make: Callable[[int, int], FleetActor],
        lives: Lives,
        *,
        max_in_flight: int,
        in_step: bool = False,
        step_timeout: float = math.inf,
    ) -> None:
        self._shared = _Shared(make, lives, max_in_flight, in_step, step_timeout)
        # Threads know the shared part alone, so that they end with the fleet, and with the process
        # before what they use is gone.
        self._finalizer = weakref.finalize(self, self._shared.stop, 5.0)

    def start(self, weights: Weights, version: int) -> None:
        """Let the actors begin, or go on after `pause`, with these weights.

        In step they wait for the first `publish`.

        Raises:
            ActorFailed: Environments that cannot be made again did not come back.
            RuntimeError: The fleet was stopped.
        """
        shared = self._shared
        with shared.changed:
            if shared.stops:
                raise RuntimeError("the fleet is stopped")
            if shared.end is not None:
                raise shared.end
            shared.rests = False
            shared.weights = weights, version
            shared.changed.notify_all()
            for number, thread in enumerate(shared.threads):
                if thread is None:
                    shared.begin(number)

    def publish(self, weights: Weights, version: int) -> None:
        """Give the weights of the unrolls that begin from now on."""
        with self._shared.changed:
            self._shared.publish(weights, version)

    def receive(self, timeout: float) -> Unroll | None:
        """The oldest unroll; None if there was none in so many seconds.

        Raises:
            Exception: The error of an actor that is not made again, as it was raised there; the
                actors rest then until `start`.
        """
        return self._shared.receive(timeout)

    def pause(self, timeout: float = math.inf) -> None:
        """Wait until all actors rest between two unrolls, or so many seconds."""
        deadline = time.monotonic() + timeout
        shared = self._shared
        with shared.changed:
            # In step, what was asked for comes first, so that a run does not depend on pauses.
            # An actor that fails on the way makes it once more.
            shared.wait_for(lambda: shared.rests or shared.stops or shared.is_done(), timeout)
            shared.rests = True
            shared.wait_for(lambda: shared.busy == 0, deadline - time.monotonic())

    def stats(self) -> FleetStats:
        """Counts of actors, unrolls, failures and received bytes."""
        shared = self._shared
        with shared.changed:
            counts = shared.lives.counts()
            return FleetStats(
                actors=len(shared.actors),
                alive=sum(one is not None and one.is_alive() for one in shared.threads),
                asked=sum(map(len, shared.asked)),
                busy=shared.busy,
                waiting=len(shared.ready),
                failures=counts["failures"],
                restarts=counts["restarts"],
                lost=counts["lost"],
                received_bytes=shared.received_bytes,
            )

    def state_dict(self) -> dict[str, Any]:
        """State of the actors at rest, and waiting unrolls; None for actors that are made again."""
        self.pause()
        shared = self._shared
        return {
            "actors": [None if one is None else one.state_dict() for one in shared.actors],
            "lives": list(shared.lives.numbers),
            "ready": waiting_states(shared.ready),
        }

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool) -> None:
        """Go on from `state_dict`.

        Args:
            state: State that `state_dict` returned.
            in_flight: True if the environments are like those of then and continue their episodes.
                Otherwise new episodes start, and what waited is left out.
        """
        self.pause()
        shared = self._shared
        in_flight = in_flight and len(state["actors"]) == len(shared.actors)
        shared.ready.clear()
        for asked in shared.asked:
            asked.clear()
        # Another number of actors: those that are new begin as they were made.
        for number, saved in enumerate(state["actors"][: len(shared.actors)]):
            if saved is not None:
                shared.made(number).load_state_dict(saved, in_flight=in_flight)
        if in_flight:
            shared.lives.numbers[:] = map(int, state["lives"])
            shared.ready.extend(map(Unroll.of_state, state["ready"]))

    def stop(self, timeout: float = 5.0) -> None:
        """End the threads and close what they collected with.

        Raises:
            TimeoutError: An environment does not come back from its step.
        """
        self._finalizer.detach()
        self._shared.stop(timeout)


class _Shared:
    """State that the threads and the learner share; `changed` guards all of it."""

    def __init__(
        self,
        make: Callable[[int, int], FleetActor],
        lives: Lives,
        max_in_flight: int,
        in_step: bool,
        step_timeout: float,
    ) -> None:
        self.make, self.lives = make, lives
        # None where an actor was left behind with its thread, and is not made again yet.
        self.actors: list[FleetActor | None] = [make(i, 0) for i in range(len(lives.numbers))]
        self.threads: list[_ActorThread | None] = [None] * len(self.actors)
        self.max_in_flight = max_in_flight
        self.in_step, self.step_timeout = in_step, step_timeout
        self.changed = threading.Condition()
        self.ready: deque[Unroll] = deque()
        # In step: with which weights each actor has unrolls to make, so that it does not matter
        # when it begins.
        self.asked: list[deque[tuple[Weights, int]]] = [deque() for _ in self.actors]
        self.weights: tuple[Weights, int] | None = None
        self.busy = self.received_bytes = 0
        self.rests, self.stops = True, False
        self.error: BaseException | None = None
        self.end: ActorFailed | None = None  # what nobody can go on after
        self.looked = time.monotonic()

    def publish(self, weights: Weights, version: int) -> None:
        self.weights = weights, version
        if self.in_step:
            for asked in self.asked:
                asked.append(self.weights)
        self.changed.notify_all()

    def receive(self, timeout: float) -> Unroll | None:
        with self.changed:
            self.wait_for(lambda: bool(self.ready) or self.error is not None, timeout)
            if self.error is not None:
                error, self.error = self.error, None
                raise error
            if not self.ready:
                return None
            self.changed.notify_all()
            unroll = self.ready.popleft()
            self.received_bytes += unroll.nbytes
            return unroll

    def wait_for(self, is_so: Callable[[], bool], timeout: float = math.inf) -> None:
        """Wait until something is so, or time is over, and look for actors that hang."""
        deadline = time.monotonic() + timeout
        self.look()
        while not is_so() and (left := deadline - time.monotonic()) > 0:
            self.changed.wait_for(is_so, min(left, LOOK))
            self.look()

    def look(self) -> None:
        """Leave those threads behind whose environments do not come back."""
        now = time.monotonic()
        if now - self.looked < min(LOOK, self.step_timeout / 4):
            return
        self.looked = now
        for number, thread in enumerate(self.threads):
            error = None if thread is None else thread.pulse.failure(number)
            if thread is not None and thread.given is not None and error is not None:
                if self.in_step:
                    self.asked[number].appendleft(thread.given)
                self._leave_behind(number, error, thread.to_lose)

    def _leave_behind(self, number: int, error: ActorFailed, lost: int) -> None:
        self.busy -= 1
        self._abandon(number)
        if self.failed(number, error, lost):
            self.begin(number)
        elif not self.lives.can_revive:
            self.end = error
        self.changed.notify_all()

    def _abandon(self, number: int) -> None:
        """Let the thread of an actor close it, whenever it comes back."""
        actor = self.actors[number]
        self.actors[number] = self.threads[number] = None
        if actor is not None:
            kill_processes(actor.env)

    def begin(self, number: int) -> None:
        """Start the thread of an actor."""
        thread = _ActorThread(self, number)
        self.threads[number] = thread
        thread.start()

    def made(self, number: int) -> FleetActor:
        """An actor, which is made if it is not there."""
        actor = self.actors[number]
        if actor is None:
            actor = self.actors[number] = self.make(number, self.lives.numbers[number])
        return actor

    def failed(self, number: int, error: BaseException, lost: int) -> bool:
        """Return True if an actor should be made again; otherwise the learner hears of it."""
        if not self.stops and self.lives.failed(number, error, lost=lost):
            return True
        self.error, self.rests = error, True
        return False

    def is_done(self) -> bool:
        """Return True if nothing is left of what was asked for in step."""
        return not self.in_step or (self.busy == 0 and not any(self.asked))

    def may_begin(self, number: int) -> bool:
        if self.rests:
            return False
        if self.in_step:
            return bool(self.asked[number])
        return self.busy + len(self.ready) < self.max_in_flight

    def stop(self, timeout: float) -> None:
        with self.changed:
            self.stops = True
            self.changed.notify_all()
            threads = [thread for thread in self.threads if thread is not None]
        deadline = time.monotonic() + timeout
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        late = [thread for thread in threads if thread.is_alive()]
        with self.changed:
            for thread in late:
                self._abandon(self.threads.index(thread))
        for actor in self.actors:
            if actor is not None:
                actor.close()
        for thread in late:
            thread.join(LAST / len(late))  # those whose environments had processes end now
        late = [thread for thread in late if thread.is_alive()]
        if late:
            names = ", ".join(thread.name for thread in late)
            raise TimeoutError(f"{names} did not end within {timeout} seconds")


class _ActorThread(threading.Thread):
    """The thread of an actor, as long as it is the one.

    Attributes:
        pulse: Tells whether it waits for environments.
        given: Weights of the unroll that it makes; None where it makes none.
        to_lose: Unrolls that would be lost with it.
    """

    def __init__(self, shared: _Shared, number: int) -> None:
        super().__init__(name=f"sharpwave actor {number}", daemon=True)
        self.pulse = Pulse(shared.step_timeout)
        self.given: tuple[Weights, int] | None = None
        self.to_lose = 0
        self._shared, self._number = shared, number

    @property
    def _is_over(self) -> bool:
        """The fleet stops, or has left this thread behind."""
        return self._shared.stops or self._shared.threads[self._number] is not self

    def run(self) -> None:
        """Make unrolls."""
        shared, number = self._shared, self._number
        while True:
            with shared.changed:
                shared.changed.wait_for(lambda: self._is_over or shared.may_begin(number))
                if self._is_over:
                    return
                self.given = shared.asked[number].popleft() if shared.in_step else shared.weights
                shared.busy += 1
                self.to_lose = 1
            if not self._work():
                return

    def _work(self) -> bool:
        """Make an unroll; otherwise make the actor again, or give it up.

        Returns:
            False if the fleet has left this thread behind.
        """
        shared, number = self._shared, self._number
        assert self.given is not None
        actor: FleetActor | None = shared.actors[number]
        try:
            actor = actor or self._made()
            with self._waiting(actor):
                unroll = actor.collect(*self.given, self._stops)
        except BaseException as raised:  # whatever it is, the learner hears of it
            error: BaseException | None = raised
            while error is not None:
                error = self._make_again(error)
            is_there = self._rest(None, has_failed=True)
        else:
            is_there = self._rest(unroll)
        if not is_there:
            self._close(actor)
        return is_there

    def _rest(self, unroll: Unroll | None, *, has_failed: bool = False) -> bool:
        """Hand over an unroll, and be no longer busy; return False if it was left behind.

        Both at once: no unroll is counted twice.
        """
        shared, number = self._shared, self._number
        with shared.changed:
            if shared.threads[number] is not self:
                return False
            if unroll is not None:
                shared.lives.succeeded(number)
                shared.ready.append(unroll)
            if has_failed and shared.in_step and self.given is not None:
                shared.asked[number].appendleft(self.given)
            self.given = None
            shared.busy -= 1
            shared.changed.notify_all()
            return True

    def _make_again(self, error: BaseException) -> BaseException | None:
        """Make the actor again, or give it up; return the exception that this raised."""
        shared, number = self._shared, self._number
        with shared.changed:
            if shared.threads[number] is not self:
                return None
            lost, self.to_lose = self.to_lose, 0
            if not shared.failed(number, error, lost):
                return None
        self._close(shared.actors[number])
        try:
            self._made()
        except BaseException as raised:  # as above
            return raised
        return None

    def _made(self) -> FleetActor:
        """A new actor, for which nobody waits if it takes too long."""
        shared, number = self._shared, self._number
        with self.pulse.waiting():
            actor = shared.make(number, shared.lives.numbers[number])
        with shared.changed:
            if shared.threads[number] is self:
                shared.actors[number] = actor
                return actor
        self._close(actor)
        raise RuntimeError("it was left behind")

    def _close(self, actor: FleetActor | None) -> None:
        with contextlib.suppress(Exception):  # what is broken may not even close
            if actor is not None:
                actor.close()

    def _waiting(self, actor: FleetActor) -> contextlib.AbstractContextManager[None]:
        return self.pulse.waiting() if actor.may_hang else contextlib.nullcontext()

    def _stops(self) -> bool:
        """Return True if an unroll should be given up; asked after each of its steps."""
        self.pulse.beat()
        return self._is_over
