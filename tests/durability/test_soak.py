"""Half an hour of work while actors, servers or shards are killed: nothing grows, all counts agree.

`SHARPWAVE_SOAK_MINUTES` is another time than 30.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("grpc")

import sharpwave as sw
from tests.contract.fleets import OPTIONS
from tests.durability.test_shards import rows_in, traffic_to
from tests.processes import actors_of
from tests.unit.distributed.envs.servers import Process
from tests.unit.distributed.replay.shards import served
from tests.waiting import LONG, wait_for

MINUTES = float(os.environ.get("SHARPWAVE_SOAK_MINUTES", "30"))
KILL_EVERY = 20.0
"""Seconds between two kills."""
N_ACTORS = 3
GROWTH = 10.0
"""Megabytes that allocators may still take after the first third."""


class Held(NamedTuple):
    """The resources of a process."""

    megabytes: float
    descriptors: int
    threads: int

    @classmethod
    def now(cls) -> Held:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
        return cls(
            pages * os.sysconf("SC_PAGE_SIZE") / 2**20, descriptors, threading.active_count()
        )


class Soak(sw.Callback):
    """Kills actors, looks at what the learner holds, and ends the run in time."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.kills = 0
        self.held: list[Held] = []
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.servers: list[Process] = []
        self._next = time.monotonic() + KILL_EVERY
        self._end = time.monotonic() + 60 * MINUTES

    def on_train_batch(self, *, algo: Any, **_: Any) -> bool:
        now = time.monotonic()
        if now > self._next:
            stats = algo.loop.fleet.stats()
            # All that were killed come back, and nothing else has ended.
            if stats.alive < N_ACTORS:
                assert now < self._next + LONG
                return True
            if self.servers:  # an actor may fail again while its server starts
                assert self.kills <= stats.restarts <= 3 * self.kills
            else:
                assert stats.restarts == self.kills
            assert stats.lost <= stats.restarts
            self.held.append(Held.now())
            self.kill(algo.loop.fleet)
            self.kills += 1
            self._next = now + KILL_EVERY
        return now < self._end

    def kill(self, fleet: Any) -> None:
        if self.servers:
            number = self.draw.randrange(len(self.servers))
            self.servers[number].end()
            self.servers[number] = served_at(self.servers[number].port)
            return
        if not self.nodes:
            os.kill(self.draw.choice(fleet._living()).process.pid, signal.SIGKILL)
            return
        number = self.draw.randrange(len(self.nodes))
        node = self.nodes[number]
        if self.draw.random() < 0.5:
            os.kill(actors_of(node.pid)[0], signal.SIGKILL)
        else:
            node.kill()
            node.wait()
            self.nodes[number] = started(fleet)


def served_at(port: int = 0) -> Process:
    """A server of as many environments as an actor has."""
    server = Process("CartPole-v1", "--n-envs", str(OPTIONS["n_envs"]), port=port)
    assert server.address
    return server


def started(fleet: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "sharpwave", "actor", "--learner", fleet.address]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def check_flat(kind: str, held: list[Held]) -> None:
    """Nothing has grown since the first third."""
    early, late = held[: len(held) // 3 + 1], held[-(len(held) // 3 + 1) :]
    for name, slack in (("megabytes", GROWTH), ("descriptors", 8), ("threads", 4)):
        first, last = (max(getattr(one, name) for one in part) for part in (early, late))
        assert last <= first + slack, (kind, name, held)


@pytest.mark.slow
@pytest.mark.timeout(60 * MINUTES + 300)
@pytest.mark.parametrize("kind", ["processes", "grpc", "servers"])
def test_nothing_grows_while_actors_are_killed(kind: str) -> None:
    options: dict[str, Any] = {**OPTIONS, "n_actors": N_ACTORS, "env_mode": "sync", "actors": kind}
    soak = Soak(random.Random(0))
    if kind == "servers":
        soak.servers = [served_at() for _ in range(N_ACTORS)]
        del options["n_envs"], options["env_mode"]
        addresses = [server.address for server in soak.servers]
        options |= {"actors": "threads", "worker_addresses": addresses}
    agent: Any = sw.IMPALA("CartPole-v1", **options)
    fleet = agent.loop.fleet
    fleet.start(agent.learner.weights(), 0)
    if kind == "grpc":
        soak.nodes = [started(fleet) for _ in range(N_ACTORS)]
    try:
        wait_for(lambda: fleet.stats().alive == N_ACTORS)
        metrics = agent.train(10**12, callbacks=soak)
        rows = OPTIONS["n_envs"] * OPTIONS["n_steps"]
        learned = N_ACTORS * agent.learner.updates
        assert agent.timesteps == rows * (learned + metrics["dropped_unrolls"])
        agent.close()
        assert [node.wait(LONG) for node in soak.nodes] == [0] * len(soak.nodes)
    finally:
        for server in soak.servers:
            server.end()
    print(f"{kind}: {soak.kills} kills, {agent.timesteps:,} steps, {soak.held}")
    check_flat(kind, soak.held)


@pytest.mark.slow
@pytest.mark.timeout(60 * MINUTES + 300)
def test_nothing_grows_while_shards_are_killed(tmp_path: Path) -> None:
    draw, held = random.Random(0), []
    folders = [tmp_path / "0", tmp_path / "1"]
    end = time.monotonic() + 60 * MINUTES
    commands = [(folder, "--capacity", "1000000") for folder in folders]
    with served(*commands) as shards, traffic_to(shards) as traffic:
        while time.monotonic() < end:
            for pushed in traffic.pushed:  # what the test itself keeps must not grow
                pushed.clear()
            drawn = traffic.drawn
            time.sleep(KILL_EVERY)
            assert traffic.drawn > drawn
            assert not traffic.failures, traffic.failures
            held.append(Held.now())
            victim = draw.randrange(2)
            shards[victim].kill()
            for replay in (traffic.reader, traffic.writer):
                wait_for(partial(_is_lost, replay, victim))
            shards[victim] = shards[victim].again()
            for replay in (traffic.reader, traffic.writer):
                wait_for(partial(getattr, replay._group.members[victim], "is_alive"))
        stats = traffic.reader.stats()
    assert stats["shards_lost"] == len(held)
    for shard, folder in enumerate(folders):
        assert traffic.pushed[shard] <= rows_in(folder)
    print(f"shards: {len(held)} kills, {stats['pushed']:,} steps, {held}")
    check_flat("shards", held)


def _is_lost(replay: Any, shard: int) -> bool:
    return not replay._group.members[shard].is_alive
