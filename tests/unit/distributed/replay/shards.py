"""Steps whose fields all say their number, and shards that hold them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave import PrioritizedReplayBuffer, ReplayBuffer
from sharpwave.distributed.replay import LocalShard, ShardedReplay
from sharpwave.types import Array
from tests.waiting import LONG

WIDTH = 5
FIELDS: dict[str, Any] = {
    "obs": {"body": ("float32", (WIDTH,)), "count": "int64"},
    "action": ("float32", (2,)),
    "reward": "float32",
    "terminated": "bool",
    "truncated": "bool",
}


def steps(numbers: Any) -> dict[str, Any]:
    """A batch of steps, every field of which is a function of the step's number."""
    x = np.asarray(numbers, np.float32)

    def observation(of: Array) -> dict[str, Array]:
        return {"body": np.repeat(of[:, None], WIDTH, 1), "count": of.astype(np.int64)}

    none = np.zeros(len(x), bool)
    return {
        "obs": observation(x),
        "next_obs": observation(x + 1),
        "actions": np.stack([x, -x], 1),
        "rewards": x,
        "terminated": none,
        "truncated": none,
    }


def numbers_of(batch: dict[str, Any], n_step: int = 1) -> Array:
    """The numbers of the steps of a batch, none of which is a mixture of two."""
    numbers: Array = batch["obs"]["count"]
    x = numbers.astype(np.float32)
    assert (batch["obs"]["body"] == x[:, None]).all()
    assert (batch["actions"] == np.stack([x, -x], 1)).all()
    if n_step == 1:
        assert (batch["rewards"] == x).all()
        assert (batch["next_obs"]["count"] == numbers + 1).all()
        assert (batch["next_obs"]["body"] == x[:, None] + 1).all()
    return numbers


def local(
    n: int, n_envs: int = 4, *, prioritized: bool = False, capacity: int = 1000, **options: Any
) -> ShardedReplay:
    """A replay of shards in this process."""
    shards = []
    for number in range(n):
        kind: Any = PrioritizedReplayBuffer if prioritized else ReplayBuffer
        share = len(range(number, n_envs, n))
        shards.append(LocalShard(kind(capacity, fields=FIELDS, n_envs=share, seed=number)))
    return ShardedReplay(shards, **options)


def chi_square_of(counts: Array, expected: Array) -> float:
    """The distance of counts from the expected ones, in standard deviations of the statistic."""
    statistic = float(((counts - expected) ** 2 / expected).sum())
    freedom = len(counts) - 1
    return (statistic - freedom) / float(np.sqrt(2 * freedom))


def _here(*command: str) -> list[str]:
    return list(command)


class Served:
    """A process that serves a shard.

    Args:
        *arguments: Of `sharpwave serve-replay`.
        port: Where it listens; a free one when 0.
        inside: What runs the command elsewhere.
    """

    def __init__(
        self, *arguments: str | Path, port: int = 0, inside: Callable[..., list[str]] = _here
    ) -> None:
        self.arguments = arguments
        command = [sys.executable, "-m", "sharpwave", "serve-replay", "--port", str(port)]
        self.process = subprocess.Popen(
            inside(*command, *map(str, arguments)), stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        assert " holds " in said, said
        self.address = said.split()[0]

    @property
    def port(self) -> int:
        """The address that it listens at."""
        return int(self.address.rpartition(":")[2])

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def again(self) -> Served:
        """Another one in its place."""
        return Served(*self.arguments, port=self.port)


@contextlib.contextmanager
def served(*arguments: tuple[str | Path, ...]) -> Iterator[list[Served]]:
    """Processes that serve shards; those in the list at the end are ended."""
    shards: list[Served] = []
    try:
        for one in arguments:
            shards.append(Served(*one))  # noqa: PERF401 - those before must be ended if it fails
        yield shards
    finally:
        for shard in shards:
            shard.kill()


@contextlib.contextmanager
def no_thread_left() -> Iterator[None]:
    """Inside, whatever is started is ended again."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(LONG)
        assert not thread.is_alive(), thread
