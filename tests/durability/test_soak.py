"""Training for half an hour while actors are killed: nothing grows, and all counts agree.

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
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("grpc")

import sharpwave as sw
from tests.contract.fleets import OPTIONS
from tests.processes import actors_of
from tests.waiting import wait_for

MINUTES = float(os.environ.get("SHARPWAVE_SOAK_MINUTES", "30"))
KILL_EVERY = 20.0
"""Seconds between two kills."""
N_ACTORS = 3
GROWTH = 10.0
"""Megabytes that allocators may still take after the first third."""


class Held(NamedTuple):
    """What a process holds."""

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
        self._next = time.monotonic() + KILL_EVERY
        self._end = time.monotonic() + 60 * MINUTES

    def on_train_batch(self, *, algo: Any, **_: Any) -> bool:
        now = time.monotonic()
        if now > self._next:
            stats = algo.loop.fleet.stats()
            # All that were killed are back, and nothing else has ended.
            assert (stats.alive, stats.restarts) == (N_ACTORS, self.kills)
            assert stats.lost <= self.kills
            self.held.append(Held.now())
            self.kill(algo.loop.fleet)
            self.kills += 1
            self._next = now + KILL_EVERY
        return now < self._end

    def kill(self, fleet: Any) -> None:
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


def started(fleet: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "sharpwave", "actor", "--learner", fleet.address]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.timeout(60 * MINUTES + 300)
@pytest.mark.parametrize("kind", ["processes", "grpc"])
def test_nothing_grows_while_actors_are_killed(kind: str) -> None:
    options: dict[str, Any] = {**OPTIONS, "n_actors": N_ACTORS, "env_mode": "sync"}
    agent: Any = sw.IMPALA("CartPole-v1", actors=kind, **options)
    fleet = agent.loop.fleet
    fleet.start(agent.learner.weights(), 0)
    soak = Soak(random.Random(0))
    if kind == "grpc":
        soak.nodes = [started(fleet) for _ in range(N_ACTORS)]
    wait_for(lambda: fleet.stats().alive == N_ACTORS)
    metrics = agent.train(10**12, callbacks=soak)
    rows = OPTIONS["n_envs"] * OPTIONS["n_steps"]
    learned = N_ACTORS * agent.learner.updates
    assert agent.timesteps == rows * (learned + metrics["dropped_unrolls"])
    agent.close()
    assert [node.wait(30) for node in soak.nodes] == [0] * len(soak.nodes)
    print(f"{kind}: {soak.kills} kills, {agent.timesteps:,} steps, {soak.held}")
    early, late = soak.held[: len(soak.held) // 3 + 1], soak.held[-(len(soak.held) // 3 + 1) :]
    for name, slack in (("megabytes", GROWTH), ("descriptors", 8), ("threads", 4)):
        first, last = (max(getattr(one, name) for one in part) for part in (early, late))
        assert last <= first + slack, (name, soak.held)
