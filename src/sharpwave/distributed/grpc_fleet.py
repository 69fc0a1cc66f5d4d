"""A fleet of remote actors over gRPC: nodes of other machines join and leave at any time.

The learner listens. A node, which is a process with one or more actors, opens a stream and says how
many it has; it gets their numbers and the recipe that makes them. Then the learner asks actors for
unrolls, one at a time, and nodes send them. Weights go to a node before it is asked for an unroll
with them, and only where it has others: once for all of its actors. Where a checkpoint is written,
actors tell where they stand, and those of a resumed run are told. `node.py` is the other end.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

from sharpwave.core.notice import notice
from sharpwave.distributed.codec import LIMIT, Packed, pack, unpack
from sharpwave.distributed.fleet import FleetStats, Unroll, Weights, waiting_states
from sharpwave.distributed.launch import START
from sharpwave.distributed.recipe import ActorRecipe
from sharpwave.distributed.security import Access
from sharpwave.distributed.sessions import Asked, Session, Slot
from sharpwave.distributed.state_codec import state_of
from sharpwave.distributed.unroll_codec import UNROLL, unroll_of
from sharpwave.distributed.unroll_schema import UnrollSchema
from sharpwave.distributed.wire import Method, Server, serve, service, split_address
from sharpwave.envs import space_to_json
from sharpwave.errors import ActorFailed, EnvironmentFailed, NonFiniteError, WireError

__all__ = ["PROTOCOL", "SERVICE", "GrpcFleet"]

PROTOCOL = 1
"""Version of the protocol between learner and nodes; nodes of another one are refused."""
SERVICE = "sharpwave.Fleet"


class GrpcFleet:
    """Actors on other machines: `sharpwave actor --learner HOST:PORT` starts some.

    Args:
        recipe: Recipe that makes the actors.
        observation_space: Observation space of one environment; nodes compare theirs.
        action_space: Action space of one environment.
        n_actors: Number of actors that the learner expects. More may join, unless they are in step.
        max_in_flight: Most unrolls that are under way or wait; more where more actors join.
        in_step: Each actor makes one unroll after every `publish`.
        address: Address to listen at, host:port.
        access: Credentials that nodes must show.
        deadline: Seconds after which a silent node is given up; it may return.
        patience: Seconds without actors after which the run ends.
        max_nodes: Most nodes at a time.

    Raises:
        TypeError: The recipe has code in it, which is not sent anywhere.
    """

    def __init__(
        self,
        recipe: ActorRecipe,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        n_actors: int,
        max_in_flight: int,
        in_step: bool = False,
        address: str = "127.0.0.1:0",
        access: Access | None = None,
        deadline: float = 10.0,
        patience: float = 300.0,
        max_nodes: int = 1024,
    ) -> None:
        self._recipe = json.dumps(recipe.to_json())
        assert recipe.env is not None
        of_env = (observation_space, action_space)
        self._spaces = json.dumps([space_to_json(space) for space in of_env])
        self._schema = UnrollSchema(
            *of_env, recipe.n_steps, recipe.env.n_envs, memory=recipe.memory
        )
        self._n_actors, self._max_in_flight, self._in_step = n_actors, max_in_flight, in_step
        self._host, self._port = split_address(address)
        self._access = access or Access()
        self._deadline, self._patience, self._max_nodes = deadline, patience, max_nodes
        # A node makes an actor up to three times, and each may take as long for every step.
        timeout = recipe.step_timeout
        self._for_unroll = deadline + 3 * (START + (recipe.n_steps + 1) * timeout)
        self._for_state = deadline + timeout
        self._run = uuid.uuid4().hex
        self._server: Server | None = None
        # One lock for everything. The learner and each session wait for changes of their own.
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._sessions: set[Session] = set()
        self._slots = [Slot(number) for number in range(n_actors)]
        self._idle: deque[Slot] = deque()  # among others, whom nobody fills any more
        self._there = self._busy = 0
        self._ready: deque[Unroll] = deque()
        self._weights: Asked | None = None
        self._error: BaseException | None = None
        self._rests, self._stops = True, False
        self._failures = self._restarts = self._lost = self._received_bytes = 0
        self._complete_at = self._looked_at = time.monotonic()
        self._pid = 0

    @property
    def address(self) -> str | None:
        """Address at which it listens; None before `start`."""
        return None if self._server is None else self._server.address

    # What the learner does

    def start(self, weights: Weights, version: int) -> None:
        """Listen, and let the actors begin, or go on after `pause`, with these weights.

        Raises:
            OSError: The port is taken.
            PermissionError: Other machines could join without token or certificate.
            RuntimeError: The fleet was stopped.
        """
        with self._lock:
            if self._stops:
                raise RuntimeError("the fleet is stopped")
            self._rests = False
            self._take_weights(weights, version)
            for slot in self._slots:
                if slot.has_failed:
                    slot.ask_again()
            self._ask_idle()
        if self._server is None:
            self._complete_at = time.monotonic()
            self._server = serve(
                [service(SERVICE, [Method("Join", self._join, stream_in=True, stream_out=True)])],
                self._host,
                self._port,
                self._access,
                max_message=max(LIMIT, self._schema.max_bytes),
                max_calls=self._max_nodes,
                silence=self._deadline,
            )
            self._pid = os.getpid()
            atexit.register(self._at_exit)
            notice(f"waiting for actors: {self._how_to_join()}")

    def publish(self, weights: Weights, version: int) -> None:
        """Give the weights of the unrolls that begin from now on."""
        with self._lock:
            asked = self._take_weights(weights, version)
            if self._in_step:
                for slot in self._slots:
                    slot.ask(asked)
                self._busy += len(self._slots)
            self._ask_idle()

    def receive(self, timeout: float) -> Unroll | None:
        """The oldest unroll; None if there was none in so many seconds.

        Raises:
            ConnectionError: There have been no actors for too long.
            Exception: The error of an actor that is not made again; the actors rest then until
                `start`.
        """
        with self._lock:
            self._arrived.wait_for(lambda: bool(self._ready) or self._error is not None, timeout)
            self._raise_error()
            self._end_late()
            if self._ready:
                unroll = self._ready.popleft()
                self._received_bytes += unroll.nbytes
                self._ask_idle()
                return unroll
            self._check_patience()
            return None

    def pause(self, timeout: float = math.inf) -> None:
        """Wait until all actors that are there rest between two unrolls, or so many seconds."""
        with self._lock:
            self._rests = True
            self._wait_until(lambda: not any(one.is_busy for one in self._slots), timeout)

    def stats(self) -> FleetStats:
        """Counts of actors, unrolls, failures and received bytes."""
        with self._lock:
            there = [slot for slot in self._slots if slot.session is not None]
            nodes = self._sessions
            return FleetStats(
                actors=self._n_actors,
                alive=len(there),
                asked=sum(len(slot.asked) for slot in self._slots if not slot.is_busy),
                busy=sum(len(slot.asked) for slot in there if not slot.has_failed),
                waiting=len(self._ready),
                failures=self._failures + sum(node.told["failures"] for node in nodes),
                restarts=self._restarts + sum(node.told["restarts"] for node in nodes),
                lost=self._lost + sum(node.told["lost"] for node in nodes),
                received_bytes=self._received_bytes,
                may_join=True,
            )

    def state_dict(self) -> dict[str, Any]:
        """State of the actors at rest, and waiting unrolls; None for actors that are not there.

        Raises:
            Exception: The error of an actor that cannot tell its state.
        """
        self.pause()
        with self._lock:
            slots = self._slots[: self._n_actors]
            for slot in slots:
                slot.ask_state()
            self._wait_until(
                lambda: self._error is not None or all(slot.has_told for slot in slots)
            )
            self._raise_error()
            # In step, the unrolls of an update are made anew where one of them is lost.
            is_whole = not any(slot.asked for slot in slots)
            return {
                "actors": [slot.state for slot in slots],
                "lives": [slot.life_of_state for slot in slots],
                "ready": waiting_states(self._ready if is_whole else ()),
            }

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool) -> None:
        """Go on from `state_dict`, that of a fleet of any kind.

        Args:
            state: State that `state_dict` returned.
            in_flight: True if the environments are like those of then and continue their episodes.
                Otherwise new episodes start, and what waited is left out.
        """
        self.pause()
        in_flight = in_flight and len(state["actors"]) == self._n_actors
        with self._lock:
            self._ready.clear()
            self._busy = 0
            for slot in self._slots:
                slot.asked.clear()
            for slot, told, life in zip(self._slots, state["actors"], state["lives"], strict=False):
                slot.load(told, int(life), in_flight=in_flight)
            if in_flight:
                self._ready.extend(map(Unroll.of_state, state["ready"]))

    def stop(self, timeout: float = 5.0) -> None:
        """Send the nodes home, and listen no more."""
        atexit.unregister(self._at_exit)
        with self._lock:
            self._stops = self._rests = True
            for session in self._sessions:
                session.say(pack("end"))
                session.end()
            self._arrived.wait_for(lambda: not self._sessions, timeout / 2)
        if self._server is not None:
            self._server.stop(timeout / 4)  # less where what was said last has been sent
            self._server = None

    def _at_exit(self) -> None:
        """Send the nodes home, which would wait for a program that has ended."""
        if os.getpid() == self._pid:  # a fork has no nodes
            self.stop()

    # What nodes do, each in threads of its own

    def _join(self, messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """The stream of a node."""
        joined = _joined(next(messages, b""))
        session = self._admit(joined["actors"], context.peer())
        if session is None:
            yield pack("full", meta={"actors": self._n_actors})
            return
        reader = threading.Thread(
            target=self._read, args=(session, messages), name="sharpwave node", daemon=True
        )
        try:
            yield self._welcome(session)
            reader.start()
            yield from session.outgoing()
        finally:
            with self._lock:
                self._leave(session)
        if session.error is not None:
            raise session.error

    def _welcome(self, session: Session) -> bytes:
        numbers = [slot.number for slot in session.slots]
        lives = [slot.life for slot in session.slots]
        return pack(
            "welcome",
            {"numbers": np.array(numbers, np.int64), "lives": np.array(lives, np.int64)},
            {
                "protocol": PROTOCOL,
                "run": self._run,
                "deadline": self._deadline,
                "recipe": self._recipe,
                "spaces": self._spaces,
            },
        )

    def _admit(self, n_actors: int, peer: str) -> Session | None:
        """Places for the actors of a node; None where there are none."""
        with self._lock:
            free = [slot for slot in self._slots if slot.session is None]
            if not self._in_step:
                most = 64 * self._max_nodes
                for number in range(len(self._slots), len(self._slots) + n_actors - len(free)):
                    if number < most:
                        self._slots.append(Slot(number))
                        free.append(self._slots[-1])
            if len(free) < n_actors or self._stops:
                return None
            session = Session(free[:n_actors], peer, self._lock)
            self._sessions.add(session)
            for slot in session.slots:
                slot.join(session)
                self._restarts += slot.life > 0
            self._there += n_actors
            self._idle.extend(session.slots)
            self._ask_idle()
            return session

    def _read(self, session: Session, messages: Iterator[bytes]) -> None:
        """Take the messages of a node until it leaves."""
        error: Exception | None = None
        try:
            for data in messages:
                self._take(session, data)
        except WireError as raised:
            error = raised
            notice(f"refused a node at {session.peer}: {raised}")
        except Exception:  # gRPC's own, of many kinds: the node is gone
            pass
        with self._lock:
            session.error = session.error or error
            self._failures += error is not None
            session.end()

    def _take(self, session: Session, data: bytes) -> None:
        packed = unpack(data, limit=max(LIMIT, self._schema.max_bytes))
        takers: dict[str, Callable[[Session, Packed], None]] = {
            UNROLL: self._take_unroll,
            "beat": self._take_beat,
            "failed": self._take_failure,
            "told": self._take_state,
        }
        if packed.kind not in takers:
            raise WireError(f"expected one of {', '.join(takers)}, got {packed.kind!r}")
        takers[packed.kind](session, packed)

    def _take_unroll(self, session: Session, packed: Packed) -> None:
        unroll = unroll_of(packed)
        slot = session.slot_of(unroll.actor)
        self._schema.check(unroll)
        with self._lock:
            if slot.session is not session:
                return  # it was given up meanwhile
            session.tell(packed.meta)  # all that may be refused comes before what is counted
            slot.take(unroll.version, packed.meta.get("serial"))
            self._ready.append(unroll)
            self._busy -= 1
            self._idle.append(slot)
            self._ask_idle()
            self._arrived.notify_all()

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _take_beat(self, session: Session, packed: Packed) -> None:
        with self._lock:
            session.tell(packed.meta)

    def _take_failure(self, session: Session, packed: Packed) -> None:
        """The learner raises what an actor raised too often; what it was making is asked again."""
        slot = session.slot_of(packed.meta.get("actor"))
        with self._lock:
            if slot.session is not session:
                return  # it was given up meanwhile, and another node may be there
            session.tell(packed.meta)
            slot.has_failed = True
            if not self._in_step:
                self._busy -= len(slot.asked)
                slot.asked.clear()
                self._idle.append(slot)
            self._error, self._rests = _error_of(packed, session.peer), True
            self._arrived.notify_all()

    def _take_state(self, session: Session, packed: Packed) -> None:
        slot, state = session.slot_of(packed.meta.get("actor")), state_of(packed)
        with self._lock:
            if slot.session is not session:
                return
            slot.take_state(state, packed.meta.get("life"))
            self._arrived.notify_all()

    # With the lock held

    def _leave(self, session: Session) -> None:
        """Forget a node; what its actors were making is lost."""
        if session not in self._sessions:
            return  # it was given up before its stream has ended
        self._sessions.remove(session)
        self._there -= len(session.slots)
        for slot in session.slots:
            self._lost += len(slot.asked)
            if not self._in_step:
                self._busy -= len(slot.asked)
                slot.asked.clear()  # in step, whoever comes next makes what was asked for
            slot.leave()
        self._failures += session.told["failures"]
        self._restarts += session.told["restarts"]
        self._lost += session.told["lost"]
        self._arrived.notify_all()

    def _wait_until(self, is_so: Callable[[], bool], timeout: float = math.inf) -> None:
        """Wait for nodes, none of which is waited for without end."""
        end = time.monotonic() + timeout
        while not is_so() and (left := end - time.monotonic()) > 0:
            self._arrived.wait(min(left, self._deadline / 4))
            self._end_late()

    def _end_late(self) -> None:
        """Give up nodes that give signs of life, and not what they were asked for."""
        if time.monotonic() - self._looked_at < self._deadline / 4:
            return
        self._looked_at = time.monotonic()
        for slot in self._slots:
            session = slot.session
            if session is not None and slot.is_late(self._for_unroll, self._for_state):
                session.error = TimeoutError(f"actor {slot.number} did not answer in time")
                session.end()
                self._failures += 1
                self._leave(session)
                notice(f"gave up a node at {session.peer}: {session.error}")

    def _ask_idle(self) -> None:
        """Ask those who wait for work, as far as the bound allows; in step `publish` asks."""
        if self._rests or self._in_step or self._weights is None:
            return
        most = self._max_in_flight * max(1.0, self._there / self._n_actors)
        while self._idle and self._busy + len(self._ready) < most:
            slot = self._idle.popleft()
            if slot.session is not None and not slot.asked:
                slot.ask(self._weights)
                self._busy += 1

    def _take_weights(self, weights: Weights, version: int) -> Asked:
        if self._weights is None or not self._weights.is_of(weights, version):
            self._weights = Asked(weights, version)
        return self._weights

    def _check_patience(self) -> None:
        """Give up where those who are needed have been away for too long."""
        there = [slot.session is not None for slot in self._slots]
        now = time.monotonic()
        if all(there) if self._in_step else any(there):
            self._complete_at = now
        elif now - self._complete_at > self._patience:
            raise ConnectionError(
                f"{sum(there)} of {self._n_actors} actors are there after {self._patience:g} s: "
                f"{self._how_to_join()}"
            )

    def _how_to_join(self) -> str:
        return f"start `sharpwave actor --learner {self.address}`"


def _joined(data: bytes) -> dict[str, Any]:
    """Contents of the message with which a node joins, checked."""
    meta = unpack(data, kind="join").meta
    if meta.get("protocol") != PROTOCOL:
        raise WireError(f"nodes must speak protocol {PROTOCOL}, got {meta.get('protocol')!r}")
    actors = meta.get("actors")
    if type(actors) is not int or not 1 <= actors <= 64:
        raise WireError(f"a node must have 1 to 64 actors, got {actors!r}")
    return {"actors": actors}


def _error_of(packed: Packed, peer: str) -> Exception:
    """Make the exception that an actor raised again, of the same kind."""
    meta = packed.meta
    kind, text = (str(meta.get(name, "")) for name in ("kind", "text"))
    trace = f"{meta.get('trace', '')}\n(of an actor at {peer})"
    if kind == "ActorFailed":
        return ActorFailed(int(meta["actor"]), trace)  # type: ignore[arg-type]
    if kind == "EnvironmentFailed" and type(meta.get("env_index")) is int:
        return EnvironmentFailed(meta["env_index"], str(meta.get("doing", "")), trace)  # type: ignore[arg-type]
    if kind == "NonFiniteError":
        return NonFiniteError(text)
    return RuntimeError(f"an actor at {peer} failed: {kind}: {text}")
