"""A node of remote actors (`sharpwave actor`): the client that joins a learner's `GrpcFleet`.

Each actor of a node is a fleet of one in step, which makes what the learner asks it for: a thread
where it steps native environments, a process where it steps those of Python. They share one
connection, and the weights that come over it.
"""

from __future__ import annotations

import json
import queue
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from sharpwave.collect import NativeRollouts
from sharpwave.distributed.answers import Answers
from sharpwave.distributed.codec import Packed, Plain, pack, unpack
from sharpwave.distributed.fleet import Unroll, Weights
from sharpwave.distributed.grpc_fleet import PROTOCOL, SERVICE
from sharpwave.distributed.hanging import in_time
from sharpwave.distributed.processes import ProcessFleet
from sharpwave.distributed.recipe import (
    ActorRecipe,
    EnvRecipe,
    Followers,
    PolicyRecipe,
    make_actor,
)
from sharpwave.distributed.security import Access
from sharpwave.distributed.state_codec import state_of, state_to_bytes
from sharpwave.distributed.supervise import Lives
from sharpwave.distributed.threads import ThreadFleet
from sharpwave.distributed.unroll_codec import unroll_to_bytes
from sharpwave.distributed.wire import connect, naming
from sharpwave.envs import space_from_json
from sharpwave.envs.named import entry_points, names_code
from sharpwave.errors import ActorFailed, EnvironmentFailed, ServerBusy, WireError

__all__ = ["Node"]

MAX_MESSAGE = 2**30
"""Bytes of the largest weights."""
FAREWELL = 2.0
"""Seconds that a learner has to take what is still to be sent when a node leaves."""


class Node:
    """Some actors for a learner elsewhere.

    Args:
        learner: The address of the learner.
        access: Token and certificates, as the learner has them.
        n_actors: Number of actors to bring.
        env: The id of the environment; the learner must have the same. One that names a module, as
            in `my_module:My-v0`, must be given: what comes over the wire imports nothing.
        patience: Seconds to wait for a learner that does not answer.
        followers: Makes policies of torch for algorithms that the learner names, such as
            `sharpwave.algorithms.followers.follower_of`; None where only native code acts.
        tell: Told what goes on, in one line.
    """

    def __init__(
        self,
        learner: str,
        access: Access | None = None,
        *,
        n_actors: int = 1,
        env: str | None = None,
        patience: float = 60.0,
        followers: Followers | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._learner, self._access = learner, access or Access()
        self._n_actors, self._env, self._patience = n_actors, env, patience
        self._followers, self._tell = followers, tell
        self._seen_at = time.monotonic()

    def run(self) -> None:
        """Act until the learner has finished.

        Where the learner is gone, it is waited for: it may be started again.

        Raises:
            ActorFailed: An environment cannot be made in time.
            ConnectionError: The learner does not come back.
            ImportError: torch is not installed, and the learner's policy needs it.
            Exception: The error that ended an actor three times in a row; the learner is told.
            PermissionError: The learner takes another token.
            ValueError: The learner names code that would be imported, or other spaces.
            WireError: The learner speaks another protocol, or refuses what was sent.
        """
        self._seen_at = time.monotonic()
        while True:
            try:
                if self._visit():
                    return
            except (ConnectionError, TimeoutError) as error:
                if isinstance(error, ServerBusy):
                    self._seen_at = time.monotonic()  # it is there, and has no place as yet
                waited = time.monotonic() - self._seen_at
                if waited > self._patience:
                    raise ConnectionError(
                        f"the learner has not answered for {waited:.0f} s: {error}"
                    ) from None
                self._tell(f"waiting for {self._learner}: {error}")
            time.sleep(0.5)

    def _visit(self) -> bool:
        """Join the learner once; return True once it has finished."""
        left = self._patience - (time.monotonic() - self._seen_at)
        channel = connect(
            self._learner, self._access, timeout=max(0.5, left), max_message=MAX_MESSAGE
        )
        with channel:
            self._seen_at = time.monotonic()
            visit = _Visit(channel, self._learner, self._n_actors)
            try:
                welcome = visit.join()
                if welcome.kind == "full":
                    raise ConnectionError(f"the learner has its {welcome.meta['actors']} actors")
                return self._act(visit, welcome)
            finally:
                visit.leave()
                self._seen_at = time.monotonic()

    def _act(self, visit: _Visit, welcome: Packed) -> bool:
        made = self._recipe(welcome)
        numbers = [int(number) for number in welcome.columns["numbers"]]
        lives = [int(life) for life in welcome.columns["lives"]]
        workers: dict[int, _Worker] = {}
        try:
            for number, life in zip(numbers, lives, strict=True):
                workers[number] = _Worker(made.of(number, life), visit)
            self._tell(f"joined {self._learner} as {', '.join(f'actor {one}' for one in numbers)}")
            return visit.follow(workers, made.n_parameters)
        finally:
            for worker in workers.values():
                worker.stop()
            for worker in workers.values():
                worker.join()

    def _recipe(self, welcome: Packed) -> _Making:
        """Recipe of the actors, once it is known to be harmless and of the learner's spaces."""
        try:
            described = json.loads(str(welcome.meta["recipe"]))
            recipe = ActorRecipe.of_json(described, self._followers)
            theirs = [space_from_json(one) for one in json.loads(str(welcome.meta["spaces"]))]
        except (KeyError, TypeError, ValueError) as error:
            raise WireError(f"{self._learner} sent no recipe: {error!r}") from None
        env, policy = recipe.env, recipe.policy
        assert isinstance(env, EnvRecipe)
        if self._env is not None and self._env != env.env:
            raise ValueError(f"env must be the learner's {env.env!r}, got {self._env!r}")
        code = [env.env] if names_code(env.env) and self._env is None else []
        code += entry_points(env.kwargs)
        if code:
            raise ValueError(
                f"{self._learner} names code that would be imported ({', '.join(code)}): if you "
                f"trust it, pass --env {env.env}"
            )

        def compare() -> _Making:
            one = replace(env, n_envs=1, mode="sync" if env.mode == "async" else env.mode).make()
            try:
                ours = [one.single_observation_space, one.single_action_space]
                if ours != theirs:
                    raise ValueError(f"{env.env} must have the spaces {theirs}, got {ours}")
                acts_natively = isinstance(policy, PolicyRecipe)
                is_native = acts_natively and NativeRollouts.why_not(one) is None
                return _Making(recipe, policy.n_weights(one), is_native)
            finally:
                one.close()

        return in_time(compare, recipe.step_timeout, int(welcome.columns["numbers"][0]))


class _Making(NamedTuple):
    """Recipe of actors here, with its number of weights, and whether native code acts."""

    recipe: ActorRecipe
    n_parameters: int
    is_native: bool

    def of(self, number: int, life: int) -> _Making:
        """The same for one of the learner's actors."""
        return self._replace(recipe=replace(self.recipe, first_number=number, first_life=life))

    def fleet(self, lives: Lives) -> ThreadFleet | ProcessFleet:
        """An actor in a thread, or in a process where it would keep others waiting."""
        options: dict[str, Any] = {"max_in_flight": 1, "in_step": True}
        if self.is_native:
            options["step_timeout"] = self.recipe.step_timeout
            return ThreadFleet(partial(make_actor, self.recipe), lives, **options)
        return ProcessFleet(self.recipe, lives, self.n_parameters, **options)


class _Worker:
    """An actor of this node, and the thread that gives it work.

    Args:
        making: Makes it.
        visit: Stream that its unrolls go to.
    """

    def __init__(self, making: _Making, visit: _Visit) -> None:
        self.number = making.recipe.first_number
        self._making, self._visit = making, visit
        self._lives = Lives(1)
        self._fleet = making.fleet(self._lives)
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._stops = False
        self._thread = threading.Thread(
            target=self._run, name=f"sharpwave worker {self.number}", daemon=True
        )
        self._thread.start()

    def ask(self, weights: Weights, version: int) -> None:
        """Ask for an unroll."""
        self._work.put(partial(self._collect, weights, version))

    def tell(self) -> None:
        """Ask for the state of the actor."""
        self._work.put(self._tell)

    def load(self, state: Any, in_flight: bool) -> None:
        """Let the actor go on from a state."""
        saved = {"actors": [state], "lives": list(self._lives.numbers), "ready": []}
        self._work.put(partial(self._fleet.load_state_dict, saved, in_flight=in_flight))

    def told(self) -> dict[str, int]:
        """Failures, restarts and lost unrolls of the actor, for the learner."""
        return self._lives.counts()

    def stop(self) -> None:
        """Let the actor end."""
        self._stops = True
        self._work.put(None)

    def join(self) -> None:
        """Wait until it has ended."""
        self._thread.join()

    def _run(self) -> None:
        try:
            while (work := self._work.get()) is not None:
                self._do(work)
        except Exception as error:  # nothing can be made any more
            self._visit.fail(error)
        finally:
            self._fleet.stop()

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # whatever it is, the learner raises it
            self._visit.tell_failure(self.number, error)
            self._begin_anew()

    def _begin_anew(self) -> None:
        """Make the actor once more, for a learner that goes on nevertheless."""
        self._fleet.stop()
        life = self._making.recipe.first_life + self._lives.numbers[0] + 1
        self._making = self._making.of(self.number, life)
        self._lives = Lives(1, before=self._lives)
        self._fleet = self._making.fleet(self._lives)

    def _collect(self, weights: Weights, version: int) -> None:
        self._fleet.start(weights, version)
        self._fleet.publish(weights, version)
        while (unroll := self._fleet.receive(0.2)) is None:
            if self._stops:
                return
        self._visit.send(self.number, unroll)

    def _tell(self) -> None:
        state = self._fleet.state_dict()["actors"][0]
        life = self._lives.numbers[0]
        self._visit.say(state_to_bytes("told", state, actor=self.number, life=life))


class _Visit:
    """A stream to the learner."""

    def __init__(self, channel: Any, learner: str, n_actors: int) -> None:
        self._learner, self._n_actors = learner, n_actors
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._workers: Mapping[int, _Worker] = {}
        self._serials: dict[int, int] = {}
        self._beat_every = 1.0
        self._error: Exception | None = None
        self._answers = Answers(channel.stream_stream(f"/{SERVICE}/Join")(self._outgoing()))

    def join(self) -> Packed:
        """The learner's first answer."""
        with naming(self._learner):
            data = self._answers.next()
        if data is None:
            raise ConnectionError(f"{self._learner} hung up")
        packed = unpack(data, limit=MAX_MESSAGE)
        if packed.kind not in ("welcome", "full"):
            raise WireError(f"{self._learner} must say welcome, got {packed.kind!r}")
        if packed.kind == "welcome" and packed.meta.get("protocol") != PROTOCOL:
            spoken = packed.meta.get("protocol")
            raise WireError(f"{self._learner} must speak protocol {PROTOCOL}, got {spoken!r}")
        self._beat_every = min(1.0, float(packed.meta.get("deadline") or 4.0) / 4)
        return packed

    def follow(self, workers: Mapping[int, _Worker], n_parameters: int) -> bool:
        """Let workers make what the learner asks for; True once it has finished.

        Raises:
            Exception: The error that ended an actor for good, or the stream.
        """
        self._workers = workers
        weights: tuple[Weights, int] | None = None
        try:
            with naming(self._learner):
                while (data := self._answers.next()) is not None:
                    packed = unpack(data, limit=MAX_MESSAGE)
                    if packed.kind == "end":
                        return True
                    if packed.kind == "weights":
                        weights = _weights_of(packed, n_parameters)
                    else:
                        self._pass_on(packed, weights)
        except Exception:
            if self._error is None:
                raise
        raise self._error or ConnectionError(f"{self._learner} hung up")

    def send(self, number: int, unroll: Unroll) -> None:
        """Send what a worker has made."""
        serial = self._serials.get(number, 0)
        self._serials[number] = serial + 1
        self.say(unroll_to_bytes(unroll, actor=number, serial=serial, **self._told()))

    def say(self, data: bytes) -> None:
        """Send a message, in turn."""
        self._outbox.put(data)

    def tell_failure(self, number: int, error: Exception) -> None:
        """Tell the learner what ended an actor."""
        told: dict[str, Plain] = {"kind": type(error).__name__, "text": str(error)[:10_000]}
        if isinstance(error, EnvironmentFailed):
            told |= {"env_index": error.env_index, "doing": error.doing}
        if isinstance(error, EnvironmentFailed | ActorFailed):
            told["trace"] = error.trace[-10_000:]
        elif not isinstance(error, ValueError):
            told["text"] = "".join(traceback.format_exception(error))[-10_000:]
        self.say(pack("failed", meta={**told, **self._told(), "actor": number}))

    def fail(self, error: Exception) -> None:
        """End the stream, and raise an error where it is followed."""
        self._error = error
        self._outbox.put(None)

    def leave(self) -> None:
        """End the stream, after what is still to be sent."""
        self._outbox.put(None)
        self._answers.finish(FAREWELL)  # until the learner has taken all, and hangs up
        self._workers = {}  # what gRPC keeps of a stream must not keep actors

    def _pass_on(self, packed: Packed, weights: tuple[Weights, int] | None) -> None:
        """Give an actor what the learner wants of it."""
        meta, numbers = packed.meta, list(self._workers)
        if meta.get("actor") not in self._workers:
            raise WireError(f"actors must be {numbers}, got {meta.get('actor')!r}")
        worker = self._workers[meta["actor"]]  # type: ignore[index]
        if packed.kind == "ask":
            if weights is None or meta.get("version") != weights[1]:
                sent = None if weights is None else weights[1]
                raise WireError(f"weights must be those sent, {sent}, got {meta.get('version')!r}")
            worker.ask(*weights)
        elif packed.kind == "tell":
            worker.tell()
        elif packed.kind == "load":
            worker.load(state_of(packed), bool(meta.get("in_flight")))
        else:
            raise WireError(f"expected one of weights, ask, tell, load, end, got {packed.kind!r}")

    def _told(self) -> dict[str, Plain]:
        """Failures, restarts and lost unrolls of all actors here."""
        told = [worker.told() for worker in self._workers.values()]
        return {name: sum(one[name] for one in told) for name in (told[0] if told else ())}

    def _outgoing(self) -> Iterator[bytes]:
        yield pack("join", meta={"protocol": PROTOCOL, "actors": self._n_actors})
        while True:
            try:
                data = self._outbox.get(timeout=self._beat_every)
            except queue.Empty:
                data = pack("beat", meta=self._told())
            if data is None:
                return
            yield data


def _weights_of(packed: Packed, n_parameters: int) -> tuple[Weights, int]:
    weights, version = packed.columns.get("weights"), packed.meta.get("version")
    if weights is None or weights.dtype != "<f4" or weights.shape != (n_parameters,):
        found = None if weights is None else f"{weights.dtype} {weights.shape}"
        raise WireError(f"weights must be float32 ({n_parameters},), got {found}")
    if type(version) is not int:
        raise WireError(f"weights must have a version, got {version!r}")
    return weights, version
