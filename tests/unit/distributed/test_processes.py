"""Fleets of processes: kills, stops, ends of the learner, and what actors do not import."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import sharpwave as sw
from sharpwave.distributed import launch
from sharpwave.errors import ActorFailed
from tests.contract.fleets import OPTIONS, check_follows, processes_left, received
from tests.envs import resumable
from tests.fleet_envs import Hanging, Marked, Slow, made_here_alone
from tests.processes import descendants, is_running, stop
from tests.waiting import LONG, wait_for, without_hanging

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")


MADE: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    assert processes_left() == []
    yield
    while MADE:
        MADE.pop().close()
    assert processes_left() == []


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, a process that is slow to give a sign of life is not taken for dead."""
    monkeypatch.setattr(launch, "SILENCE", 30.0)


def made(world: Any = "CartPole-v1", **options: Any) -> Any:
    MADE.append(sw.IMPALA(world, actors="processes", **{**OPTIONS, **options}))
    return MADE[-1]


def pids(agent: Any) -> list[int]:
    return [actor.process.pid for actor in agent.loop.fleet._living()]


def kill_at_random(n_kills: int, rng: np.random.Generator) -> None:
    agent = made(Marked, n_actors=2, max_in_flight=4, max_lag=1000)
    fleet, weights = agent.loop.fleet, agent.learner.weights()
    fleet.start(weights, 0)
    unrolls = [received(fleet)]
    for number in range(n_kills):
        # The one that is killed has made an unroll since it was killed the last time.
        victim = number % 2
        seen = len(unrolls)
        while not any(one.actor == victim for one in unrolls[seen:]):
            unrolls.append(received(fleet))
        deadline = time.monotonic() + rng.uniform(0, 0.05)
        while time.monotonic() < deadline:
            unroll = fleet.receive(0.001)
            unrolls += [] if unroll is None else [unroll]
        pid = pids(agent)[victim]
        os.kill(pid, signal.SIGKILL)
        with without_hanging():
            while pid in pids(agent) or len(pids(agent)) < 2:
                unroll = fleet.receive(0.01)
                unrolls += [] if unroll is None else [unroll]
    unrolls += [received(fleet) for _ in range(8)]
    stats = fleet.stats()
    assert stats.failures == stats.restarts == n_kills
    assert stats.lost <= n_kills
    check_follows(unrolls)
    agent.close()


@pytest.mark.long
def test_an_actor_that_is_killed_is_back_and_no_unroll_is_torn_or_twice() -> None:
    kill_at_random(4, np.random.default_rng(3))


@pytest.mark.slow
def test_actors_are_killed_at_fifty_moments() -> None:
    kill_at_random(50, np.random.default_rng(4))


@pytest.mark.long
@pytest.mark.parametrize("deterministic", [False, True])
def test_training_goes_on_while_actors_are_killed(deterministic: bool) -> None:
    agent = made(Slow, deterministic=deterministic, n_envs=1)
    killed: list[int] = []

    class Kill(sw.Callback):
        def on_train_batch(self, *, updates: float, **_: Any) -> None:
            if updates in (3, 9):
                killed.append(pids(agent)[len(killed)])
                os.kill(killed[-1], signal.SIGKILL)

    metrics = agent.train(400, callbacks=Kill())
    assert len(killed) == 2
    assert metrics["restarts"] == 2
    assert metrics["lost_unrolls"] <= 2
    assert metrics["actors_alive"] == 2
    assert agent.timesteps == 16 * agent.learner.updates + 8 * metrics["dropped_unrolls"]
    agent.close()


@pytest.mark.long
def test_other_threads_may_look_at_the_counts() -> None:
    """They took messages of actors, which were taken for dead."""
    agent = made(max_lag=100)
    fleet, over = agent.loop.fleet, threading.Event()
    seen: set[int] = set()

    def look() -> None:
        while not over.is_set():
            seen.add(fleet.stats().waiting)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        metrics = agent.train(64 * 200)
    finally:
        over.set()
        looking.join()
    assert (metrics["restarts"], metrics["lost_unrolls"], metrics["actors_alive"]) == (0, 0, 2)
    assert len(seen) > 1
    agent.close()


@pytest.mark.long
def test_a_process_that_is_killed_three_times_in_a_row_ends_the_run() -> None:
    agent = made(Slow, n_actors=1, n_envs=1, n_steps=1000)
    fleet = agent.loop.fleet
    fleet.start(agent.learner.weights(), 0)
    seen: set[int] = set()

    def kill() -> None:
        while len(seen) < 3:
            for pid in {int(one) for one in processes_left()} - seen:
                seen.add(pid)
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(ActorFailed, match="actor 0 failed: its process ended by SIGKILL"):
        wait_for(lambda: fleet.receive(1.0) is not None)
    killer.join()
    agent.close()


@pytest.mark.long
def test_an_actor_that_is_stopped_is_declared_dead_and_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launch, "SILENCE", 4.0)
    agent = made(max_lag=1000)
    fleet = agent.loop.fleet
    fleet.start(agent.learner.weights(), 0)
    actors: set[int] = set()
    while len(actors) < 2:
        actors.add(received(fleet).actor)
    stopped, _ = pids(agent)
    stop(stopped)
    began, others = time.monotonic(), 0
    with without_hanging():
        while stopped in pids(agent):
            unroll = fleet.receive(0.01)
            others += unroll is not None and unroll.actor == 1
    assert time.monotonic() - began > 1.5
    assert others > 3
    actors.clear()
    while 0 not in actors:
        actors.add(received(fleet).actor)
    assert (fleet.stats().restarts, fleet.stats().alive) == (1, 2)
    agent.close()


@pytest.mark.long
def test_an_environment_that_is_never_made_is_named() -> None:
    agent = made(partial(made_here_alone, os.getpid()), n_actors=1, step_timeout=10.0)
    with pytest.raises(ActorFailed, match=r"in never_made(.|\n)*did not come back within 10 s"):
        agent.train(64)
    assert agent.loop.fleet.stats().failures == 3


@pytest.mark.long
def test_processes_of_environments_that_hang_are_ended_with_their_actor() -> None:
    """Each environment has a process, which hears nothing while it hangs."""
    agent = made(partial(Hanging, 3), n_actors=1, step_timeout=5.0, env_mode="async", n_envs=2)
    fleet = agent.loop.fleet
    fleet.start(agent.learner.weights(), 0)
    wait_for(lambda: fleet.stats().busy == 1)
    seen: set[int] = set()

    def receive_and_look() -> None:
        while fleet.receive(0.05) is None:
            seen.update(*(descendants(pid) for pid in pids(agent)))

    with pytest.raises(ActorFailed, match="did not come back"):
        receive_and_look()
    agent.close()
    assert len(seen) >= 2
    wait_for(lambda: not any(is_running(pid) for pid in seen))


@pytest.mark.long
@pytest.mark.parametrize(
    "state", ["busy", "hanging", "waiting", "stopped", "killed", "starting", "paused"]
)
def test_nothing_is_left_in_any_state(state: str) -> None:
    worlds: dict[str, Any] = {"busy": Slow, "hanging": partial(Hanging, 3)}
    agent = made(worlds.get(state, resumable), n_steps=500 if state == "busy" else 8)
    fleet = agent.loop.fleet
    fleet.start(agent.learner.weights(), 0)
    if state != "starting":
        wait_for(lambda: fleet.stats().busy == 2 or fleet.stats().waiting > 0)
    if state == "waiting":
        wait_for(lambda: fleet.stats().waiting == 2)
    elif state in ("stopped", "killed"):
        os.kill(pids(agent)[0], signal.SIGSTOP if state == "stopped" else signal.SIGKILL)
    elif state == "paused":
        fleet.pause()
    with without_hanging():
        agent.close()
    assert processes_left() == []


SCRIPT = """
import sys, time
import sharpwave as sw
agent = sw.IMPALA("CartPole-v1", actors="processes", n_envs=4, n_steps=8, hidden=(8,), seed=1)
class Tell(sw.Callback):
    def on_train_batch(self, *, updates, **_):
        if updates == 3:
            print(*[actor.process.pid for actor in agent.loop.fleet._living()], flush=True)
try:
    agent.train(10**9, callbacks=Tell())
finally:
    print("torch" in sys.modules, flush=True)
"""


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_actors_end_with_the_learner(number: signal.Signals) -> None:
    learner = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert learner.stdout is not None
    with learner:
        actors = [int(pid) for pid in learner.stdout.readline().split()]
        assert len(actors) == 2
        assert all(map(is_running, actors))
        learner.send_signal(number)
        learner.wait(LONG)
        wait_for(lambda: not any(map(is_running, actors)))
        if number == signal.SIGINT:
            assert learner.stdout.readline().split() == ["False"]


@pytest.mark.long
@pytest.mark.parametrize("world", ["CartPole-v1", resumable], ids=["native", "python"])
def test_a_process_of_an_actor_is_small_and_without_torch(world: Any) -> None:
    agent = made(world)
    agent.loop.fleet.start(agent.learner.weights(), 0)
    for _ in range(4):
        received(agent.loop.fleet)
    for pid in pids(agent):
        assert "libtorch" not in Path(f"/proc/{pid}/maps").read_text()
        status = Path(f"/proc/{pid}/status").read_text()
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        assert int(peak.split()[1]) < 60 * 1024
        for one in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed since it was listed
                link = str(one.readlink())
                assert "/shm/" not in link or link.endswith("(deleted)")
    agent.close()


@pytest.mark.long
def test_torch_acts_in_processes_for_learners_of_torch() -> None:
    """Squashed actions are not known to native code."""
    options: dict[str, Any] = {"deterministic": True, "squash_actions": True, "n_envs": 2}
    agents = [
        sw.IMPALA("Pendulum-v1", actors=kind, **{**OPTIONS, **options})
        for kind in ("threads", "processes")
    ]
    for agent in agents:
        agent.train(96)
    np.testing.assert_array_equal(*(agent.learner.weights() for agent in agents))
    for agent in agents:
        agent.close()


@pytest.mark.long
def test_environments_of_this_process_alone_are_known_to_actors() -> None:
    """Local classes and ids travel by value."""

    class Own(gym.Env[Any, Any]):
        observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        action_space = gym.spaces.Discrete(2)

        def reset(self, **_: Any) -> Any:
            return np.zeros(2, np.float32), {}

        def step(self, action: Any) -> Any:
            return np.full(2, 0.25, np.float32), 1.0, False, False, {}

    kind: Any = Own
    gym.register("OnlyHere-v0", kind)
    try:
        for world in ("OnlyHere-v0", kind, lambda: kind()):
            agent = made(world, n_actors=1)
            agent.train(64)
            assert agent.loop.fleet.stats().failures == 0
            agent.close()
    finally:
        del gym.registry["OnlyHere-v0"]


def test_what_cannot_be_pickled_is_named() -> None:
    lock = threading.Lock()

    def world() -> Any:
        with lock:
            return resumable()

    message = (
        r"env_id must be something that can be pickled .*cannot pickle .*lock.*: give it as an id"
    )
    with pytest.raises(TypeError, match=message):
        made(world)
    agent = sw.IMPALA(world, **OPTIONS)  # "auto" takes threads then
    assert type(agent.loop.fleet).__name__ == "ThreadFleet"
    agent.close()
