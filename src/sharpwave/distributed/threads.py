"""A fleet whose actors are threads of this process."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from sharpwave.distributed.actors import FleetActor
from sharpwave.distributed.fleet import FleetStats, Unroll, Weights, waiting_states
from sharpwave.distributed.supervise import Lives

__all__ = ["ThreadFleet"]


class ThreadFleet:
    """Actors in threads: native environments step without the interpreter, beside each other.

    Environments and policies of Python take turns, since one thread at a time interprets. An actor
    that fails is made again, with new environments.

    Args:
        make: Makes an actor of its number and of how often it was made before.
        lives: Which actors there are, and how often they may fail.
        max_in_flight: Most unrolls that are under way or wait; actors rest at that.
        in_step: Each actor makes one unroll after every `publish`, and none before the next: which
            weights an unroll has does not depend on who is faster.
    """

    def __init__(
        self,
        make: Callable[[int, int], FleetActor],
        lives: Lives,
        *,
        max_in_flight: int,
        in_step: bool = False,
    ) -> None:
        self._shared = _Shared(make, lives, max_in_flight, in_step)
        self._threads: list[threading.Thread] = []
        # Threads know the shared part alone, so that they end with the fleet, and with the process
        # before what they use is gone.
        self._finalizer = weakref.finalize(self, self._shared.stop, self._threads, 5.0)

    def start(self, weights: Weights, version: int) -> None:
        """Let the actors begin, or go on after `pause`, with these weights.

        In step they wait for the first `publish`.

        Raises:
            RuntimeError: The fleet was stopped.
        """
        shared = self._shared
        with shared.changed:
            if shared.stops:
                raise RuntimeError("the fleet is stopped")
            shared.rests = False
            shared.weights = weights, version
            shared.changed.notify_all()
        if not self._threads:
            for number in range(len(shared.actors)):
                name = f"sharpwave actor {number}"
                thread = threading.Thread(
                    target=shared.work, args=(number,), name=name, daemon=True
                )
                self._threads.append(thread)
                thread.start()

    def publish(self, weights: Weights, version: int) -> None:
        """Give the weights of the unrolls that begin from now on."""
        with self._shared.changed:
            self._shared.publish(weights, version)

    def receive(self, timeout: float) -> Unroll | None:
        """The oldest unroll; None if there was none in so many seconds.

        Raises:
            Exception: What ended an actor that is not made again, as it was raised there; the
                actors rest then until `start`.
        """
        return self._shared.receive(timeout)

    def pause(self) -> None:
        """Wait until all actors rest between two unrolls, where `start` finds them."""
        shared = self._shared
        with shared.changed:
            # In step, what was asked for comes first, so that a run does not depend on pauses.
            # An actor that fails on the way makes it once more.
            shared.changed.wait_for(lambda: shared.rests or shared.stops or shared.is_done())
            shared.rests = True
            shared.changed.wait_for(lambda: shared.busy == 0)

    def stats(self) -> FleetStats:
        """Where it stands."""
        shared = self._shared
        alive = sum(thread.is_alive() for thread in self._threads)
        with shared.changed:
            return FleetStats(
                actors=len(shared.actors),
                alive=alive,
                asked=sum(map(len, shared.asked)),
                busy=shared.busy,
                waiting=len(shared.ready),
                failures=shared.lives.failures,
                restarts=shared.lives.restarts,
                lost=shared.lives.lost,
                received_bytes=shared.received_bytes,
            )

    def state_dict(self) -> dict[str, Any]:
        """Where the actors stand at rest, and what waits."""
        self.pause()
        shared = self._shared
        return {
            "actors": [actor.state_dict() for actor in shared.actors],
            "lives": list(shared.lives.numbers),
            "ready": waiting_states(shared.ready),
        }

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool) -> None:
        """Go on from `state_dict`.

        Args:
            state: What `state_dict` returned.
            in_flight: Whether the environments are like those of then, and go on where they stood.
                Otherwise new episodes start, and what waited is left out.
        """
        self.pause()
        shared = self._shared
        in_flight = in_flight and len(state["actors"]) == len(shared.actors)
        shared.ready.clear()
        for asked in shared.asked:
            asked.clear()
        # Another number of actors: those that are new begin as they were made.
        for actor, saved in zip(shared.actors, state["actors"], strict=False):
            if saved is not None:
                actor.load_state_dict(saved, in_flight=in_flight)
        if in_flight:
            shared.lives.numbers[:] = map(int, state["lives"])
            shared.ready.extend(map(Unroll.of_state, state["ready"]))

    def stop(self, timeout: float = 5.0) -> None:
        """End the threads and close what they collected with.

        Raises:
            TimeoutError: An environment does not come back from its step.
        """
        self._finalizer.detach()
        self._shared.stop(self._threads, timeout)


class _Shared:
    """What the threads and the learner share; `changed` guards all of it."""

    def __init__(
        self,
        make: Callable[[int, int], FleetActor],
        lives: Lives,
        max_in_flight: int,
        in_step: bool,
    ) -> None:
        self.make, self.lives = make, lives
        self.actors = [make(number, 0) for number in range(len(lives.numbers))]
        self.max_in_flight = max_in_flight
        self.in_step = in_step
        self.changed = threading.Condition()
        self.ready: deque[Unroll] = deque()
        # In step: with which weights each actor has unrolls to make, so that it does not matter
        # when it begins.
        self.asked: list[deque[tuple[Weights, int]]] = [deque() for _ in self.actors]
        self.weights: tuple[Weights, int] | None = None
        self.busy = self.received_bytes = 0
        self.rests, self.stops = True, False
        self.error: BaseException | None = None

    def publish(self, weights: Weights, version: int) -> None:
        self.weights = weights, version
        if self.in_step:
            for asked in self.asked:
                asked.append(self.weights)
        self.changed.notify_all()

    def receive(self, timeout: float) -> Unroll | None:
        with self.changed:
            self.changed.wait_for(lambda: self.ready or self.error is not None, timeout)
            if self.error is not None:
                error, self.error = self.error, None
                raise error
            if not self.ready:
                return None
            self.changed.notify_all()
            unroll = self.ready.popleft()
            self.received_bytes += unroll.nbytes
            return unroll

    def work(self, number: int) -> None:
        """What the thread of an actor does."""
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.stops or self._may_begin(number))
                if self.stops:
                    return
                given = self.asked[number].popleft() if self.in_step else self.weights
                assert given is not None
                self.busy += 1
            unroll, error = None, None
            try:
                unroll = self.actors[number].collect(*given, lambda: self.stops)
            except BaseException as raised:  # whatever it is, the learner hears of it
                error = raised
            with self.changed:
                if error is not None and self.in_step:
                    self.asked[number].appendleft(given)
                if unroll is not None:
                    self.lives.succeeded(number)
                    self.ready.append(unroll)
            lost = 1
            while error is not None:
                error, lost = self._failed(number, error, lost), 0
            with self.changed:
                self.busy -= 1
                self.changed.notify_all()

    def _failed(self, number: int, error: BaseException, lost: int) -> BaseException | None:
        """Make an actor again, or give up; what was raised meanwhile."""
        with self.changed:
            if self.stops or not self.lives.failed(number, error, lost=lost):
                self.error, self.rests = error, True
                return None
            life = self.lives.numbers[number]
        with contextlib.suppress(Exception):  # what is broken may not even close
            self.actors[number].close()
        try:
            self.actors[number] = self.make(number, life)
        except BaseException as raised:  # as above
            return raised
        return None

    def is_done(self) -> bool:
        """Whether nothing is left of what was asked for in step."""
        return not self.in_step or (self.busy == 0 and not any(self.asked))

    def _may_begin(self, number: int) -> bool:
        if self.rests:
            return False
        if self.in_step:
            return bool(self.asked[number])
        return self.busy + len(self.ready) < self.max_in_flight

    def stop(self, threads: Sequence[threading.Thread], timeout: float) -> None:
        with self.changed:
            self.stops = True
            self.changed.notify_all()
        for thread in threads:
            thread.join(timeout)
        late = [thread.name for thread in threads if thread.is_alive()]
        if late:
            raise TimeoutError(f"{', '.join(late)} did not end within {timeout} seconds")
        for actor in self.actors:
            actor.close()
