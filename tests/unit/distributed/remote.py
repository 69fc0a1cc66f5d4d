"""A small fleet over gRPC, and nodes that say what a test wants."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sharpwave.distributed import ActorRecipe, EnvRecipe, PolicyRecipe, Unroll, make_actor
from sharpwave.distributed.codec import Packed, pack, unpack
from sharpwave.distributed.fleet import Weights
from sharpwave.distributed.grpc_fleet import PROTOCOL, SERVICE, GrpcFleet
from sharpwave.distributed.node import Node
from sharpwave.distributed.unroll_codec import unroll_to_bytes
from sharpwave.distributed.wire import connect, naming
from tests.waiting import LONG

N_STEPS, N_ENVS = 8, 4
RECIPE = ActorRecipe(
    env=EnvRecipe(env="CartPole-v1", n_envs=N_ENVS),
    policy=PolicyRecipe(hidden=(8,), critic_hidden=(8,), activation="tanh"),
    n_steps=N_STEPS,
    gamma=0.99,
    seeds=(1, 2),
)


def made() -> tuple[tuple[Any, Any], Weights]:
    """The spaces of an environment of the recipe, and weights of its policy."""
    assert RECIPE.env is not None
    assert isinstance(RECIPE.policy, PolicyRecipe)
    env = RECIPE.env.make()
    size = RECIPE.policy.layout(env).n_parameters
    weights = np.random.default_rng(0).normal(size=size).astype(np.float32)
    return (env.single_observation_space, env.single_action_space), weights * np.float32(0.1)


SPACES, WEIGHTS = made()


@contextmanager
def listening(recipe: ActorRecipe = RECIPE, **options: Any) -> Iterator[GrpcFleet]:
    """A fleet that has started; nodes that say nothing are there until they leave."""
    given: dict[str, Any] = {"n_actors": 2, "max_in_flight": 2, "deadline": LONG, **options}
    fleet = GrpcFleet(recipe, *SPACES, **given)
    fleet.start(WEIGHTS, 0)
    try:
        yield fleet
    finally:
        fleet.stop()


def address_of(fleet: GrpcFleet) -> str:
    assert fleet.address is not None
    return fleet.address


class Acting:
    """A node in a thread.

    Attributes:
        said: What it told.
        error: What ended it; None where the learner did.
    """

    def __init__(self, address: str, **options: Any) -> None:
        self.said: list[str] = []
        self.error: BaseException | None = None
        self._node = Node(address, tell=self.said.append, **options)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._node.run()
        except Exception as error:
            self.error = error

    def wait(self, timeout: float = LONG) -> BaseException | None:
        """The error that ended it."""
        self._thread.join(timeout)
        assert not self._thread.is_alive()
        return self.error


class Liar:
    """A node that says what it is told to.

    Args:
        address: Of the learner.
        channel: To it; one of its own when None.
    """

    def __init__(self, address: str, channel: Any = None) -> None:
        self._owns = channel is None
        self._channel = connect(address, max_message=2**28) if channel is None else channel
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._address = address
        self._answers = self._channel.stream_stream(f"/{SERVICE}/Join")(
            iter(self._outbox.get, None)
        )

    def say(self, data: bytes) -> None:
        self._outbox.put(data)

    def join(self, n_actors: int = 1) -> Packed:
        self.say(pack("join", meta={"protocol": PROTOCOL, "actors": n_actors}))
        return self.hear()

    def hear(self) -> Packed:
        """The next answer; what refused it, as `naming` says."""
        with naming(self._address):
            for data in self._answers:
                return unpack(data, limit=2**28)
        raise ConnectionError("hung up")

    def close(self) -> None:
        self._outbox.put(None)
        self._answers.cancel()
        if self._owns:
            self._channel.close()

    def __enter__(self) -> Liar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def unroll(actor: int = 0, version: int = 0) -> Unroll:
    """A real one."""
    made = make_actor(RECIPE, actor)
    try:
        found = made.collect(WEIGHTS, version, lambda: False)
        assert found is not None
        return found
    finally:
        made.close()


def unroll_bytes(
    actor: Any = 0, version: Any = 0, serial: Any = 0, *, meta: Any = None, **columns: Any
) -> bytes:
    """The message of a real one, with other columns and `meta`; None leaves a column out."""
    packed = unpack(unroll_to_bytes(unroll(actor, version), serial=serial))
    both = {**packed.columns, **columns}
    kept = {name: x for name, x in both.items() if x is not None}
    return pack("unroll", kept, {**packed.meta, **(meta or {})})
