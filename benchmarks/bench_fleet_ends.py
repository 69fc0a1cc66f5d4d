"""Seconds until a fleet goes on, or has ended, whatever its actors do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench_distributed import N_STEPS, ROUNDS, made
from harness import OURS, AtMost, Result, collect


def rows() -> Iterator[Result]:
    yield collect(
        "process of an actor that is killed, to the next unroll of the one in its place",
        "s",
        {OURS: killed},
        [AtMost(10, "s")],
        rounds=ROUNDS,
    )
    for doing in ("are busy", "have an environment that hangs", "wait"):
        yield collect(
            f"close of an agent, 2 actors in processes that {doing}",
            "s",
            {OURS: partial(closed, doing)},
            [AtMost(5, "s")],
            note="environments of Python; those that are busy are in the midst of long unrolls",
            rounds=ROUNDS,
        )
    yield collect(
        "Ctrl-C to the exit of a script that trains, 2 actors in processes",
        "s",
        {OURS: interrupted},
        [AtMost(5, "s")],
        rounds=ROUNDS,
    )


def killed() -> float:
    agent = made("processes", n_actors=1)
    fleet = agent.loop.fleet
    fleet.start(agent.learner.weights(), 0)
    while fleet.receive(1.0) is None:
        pass
    os.kill(fleet._living()[0].process.pid, signal.SIGKILL)
    began = time.perf_counter()
    while fleet.stats().restarts == 0 or fleet.stats().waiting:  # those of before
        fleet.receive(0.01)
    while fleet.receive(0.1) is None:
        pass
    seconds = time.perf_counter() - began
    agent.close()
    return seconds


def closed(doing: str) -> float:
    """Seconds that `close` takes while actors do something."""
    import gymnasium as gym

    import sharpwave as sw

    folder, hangs = Path(tempfile.mkdtemp()), "hangs" in doing

    class Told(gym.Wrapper[Any, Any, Any, Any]):
        """Leaves a file in its third step, from which it may not come back."""

        def __init__(self) -> None:
            super().__init__(gym.make("CartPole-v1"))
            self.steps = 0

        def step(self, action: Any) -> Any:
            self.steps += 1
            if self.steps == 3:
                (folder / str(os.getpid())).touch()
                time.sleep(100_000 * hangs)
            return self.env.step(action)

    options: dict[str, Any] = {"env_mode": "sync", "n_actors": 2, "n_envs": 1, "seed": 0}
    options["n_steps"] = 1_000_000 if doing == "are busy" else N_STEPS
    agent: Any = sw.IMPALA(Told, actors="processes", max_in_flight=2, **options)
    fleet = agent.loop.fleet
    fleet.start(agent.learner.weights(), 0)
    while len(list(folder.iterdir())) < 2 or (doing == "wait" and fleet.stats().waiting < 2):
        time.sleep(0.01)
    began = time.perf_counter()
    agent.close()
    seconds = time.perf_counter() - began
    shutil.rmtree(folder)
    return seconds


SCRIPT = """
import sharpwave as sw

class Tell(sw.Callback):
    def on_train_batch(self, *, algo, **_):
        if algo.learner.updates == 10:
            print("learns", flush=True)

agent = sw.IMPALA("CartPole-v1", n_actors=2, env_mode="sync", actors="processes", seed=0)
agent.train(10**9, callbacks=Tell())
"""


def interrupted() -> float:
    command = [sys.executable, "-c", SCRIPT]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **quiet) as script:  # type: ignore[call-overload]
        script.stdout.readline()
        began = time.perf_counter()
        script.send_signal(signal.SIGINT)
        script.wait()
    return time.perf_counter() - began
