"""A thousand actors on a real wire: what a learner takes, beside what `sharpwave plan` foretells.

Processes of this machine stand in for nodes and send the same unroll again and again, so that the
learner is the limit. They compete with it for the cores, as those of the plan's own measurement do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from harness import OURS, AtMost, Ratio, Result, collect

N_ACTORS, N_ENVS, N_STEPS = 1000, 16, 80
BATCH_UNROLLS = 250
SECONDS = 20.0
FORMS = {"50 nodes of 20": 20, "1,000 nodes of one": 1}
"""Actors that share a connection."""


def rows() -> Iterator[Result]:
    plan = [f"--actors={N_ACTORS}", f"--envs={N_ENVS}", f"--unroll={N_STEPS}"]
    plan += [f"--batch-unrolls={BATCH_UNROLLS}"]
    for name, node_actors in FORMS.items():
        found, foretold = simulated(node_actors), forecast([*plan, f"--node-actors={node_actors}"])
        what = f"{N_ACTORS:,} simulated actors, {name}"
        note = (
            f"lag {found['lag']:.2f}, foretold {foretold.lag:.2f}; {found['threads']:.0f} threads"
            f" of the learner; {found['received']:,.0f} unrolls in {found['seconds']:.0f} s; the"
            f" plan says that {foretold.limit} will be the limit"
        )
        yield collect(
            f"{what}: a step",
            "s/step",
            {
                OURS: partial(float, 1 / found["rate"]),
                "plan": partial(float, 1 / foretold.steps_per_second),
            },
            [Ratio("plan", 0.75)],
            note=note,
        )
        yield collect(
            f"{what}: memory of the learner for each",
            "MB",
            {OURS: partial(float, found["megabytes"])},
            [AtMost(1.0, "MB")],
            note="growth of its resident set from before it listens to the end, with what waits",
        )


def forecast(arguments: list[str]) -> Any:
    from sharpwave.cli.plan import measure

    return measure(["impala", "CartPole-v1", *arguments])


def simulated(node_actors: int) -> dict[str, float]:
    """Train with simulated actors in a process of its own, whose memory is its own too."""
    command = [sys.executable, __file__, str(node_actors)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def learn(node_actors: int) -> None:
    """Print what a learner with simulated actors sees."""
    import sharpwave as sw
    from sharpwave.distributed.stand_ins import StandIns

    agent: Any = sw.IMPALA(
        "CartPole-v1",
        actors="grpc",
        n_actors=N_ACTORS,
        n_envs=N_ENVS,
        n_steps=N_STEPS,
        batch_unrolls=BATCH_UNROLLS,
        max_lag=2 * N_ACTORS // BATCH_UNROLLS,
        seed=0,
    )
    unroll, before = a_real_one(), megabytes()
    fleet = agent.loop.fleet
    fleet.start(agent.learner.weights(), 0)
    fleet.pause()
    with StandIns(fleet.address, unroll, N_ACTORS // node_actors, node_actors) as stand_ins:
        while fleet.stats().alive < N_ACTORS:
            stand_ins.check()
            time.sleep(0.1)
        found = watched(agent)
        found["megabytes"] = (megabytes() - before) / N_ACTORS
        agent.close()
    print(json.dumps(found))


def watched(agent: Any) -> dict[str, float]:
    """Train until everything is as it will be, and then for the time that counts."""
    import sharpwave as sw

    lags: list[float] = []

    class Watch(sw.Callback):
        def on_train_batch(self, *, lag: float, **_: Any) -> bool:
            lags.append(lag)
            return time.perf_counter() < self.end

        end = time.perf_counter() + 5

    agent.train(10**9, callbacks=Watch())
    lags.clear()
    Watch.end = time.perf_counter() + SECONDS
    began, steps = time.perf_counter(), agent.timesteps
    agent.train(10**9, callbacks=Watch())
    seconds, steps = time.perf_counter() - began, agent.timesteps - steps
    stats = agent.loop.fleet.stats()
    assert (stats.alive, stats.failures, stats.lost) == (N_ACTORS, 0, 0)
    return {
        "rate": steps / seconds,
        "seconds": seconds,
        "received": steps / (N_ENVS * N_STEPS),
        "lag": sum(lags) / len(lags),
        "threads": threading.active_count(),
    }


def megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def a_real_one() -> Any:
    import sharpwave as sw

    agent: Any = sw.IMPALA("CartPole-v1", n_actors=1, n_envs=N_ENVS, n_steps=N_STEPS, seed=0)
    agent.loop.fleet.start(agent.learner.weights(), 0)
    unroll = agent.loop.fleet.receive(10.0)
    agent.close()
    return unroll


if __name__ == "__main__":
    learn(int(sys.argv[1]))
