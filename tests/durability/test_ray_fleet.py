"""Actors that Ray starts: they make what threads make, and come back when they are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.distributed.ray_cluster import RayCluster
from tests.contract.fleets import (
    OPTIONS,
    check_follows,
    nodes_of_ray,
    patiently,
    placed,
    stop_ray,
)
from tests.fleet_envs import Marked
from tests.fleet_ids import id_of
from tests.processes import command_of, descendants, is_running
from tests.waiting import LONG, receive_until, wait_for

# What every process of a cluster has to know; Ray reads it once.
os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN"] = "only for these tests, which listen for seconds"
ray = pytest.importorskip("ray")

pytestmark = [
    pytest.mark.slow,  # Ray gives itself 30 s to start, which a busy machine may need more of
    pytest.mark.timeout(600),
    # Ray's own: files and sockets that it leaves to the collector.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture
def no_ray_is_left() -> Iterator[None]:
    yield
    assert not ray.is_initialized()
    wait_for(lambda: nodes_of_ray() == [])


class Kill(sw.Callback):
    """Kills an actor once it has acted."""

    def __init__(self) -> None:
        self.killed: list[int] = []

    def on_train_batch(self, *, algo: Any, **_: Any) -> None:
        if not self.killed:
            wait_for(lambda: algo.loop.fleet.stats().alive == 2)
            self.killed = nodes_of_ray()[:1]
            os.kill(self.killed[0], signal.SIGKILL)


@pytest.mark.usefixtures("no_ray_is_left")
def test_runs_are_those_of_threads_and_a_killed_actor_comes_back(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """In step, so that every number is the same, whoever was killed meanwhile."""
    weights = []
    for actors in ("threads", "ray"):
        agent = sw.IMPALA("CartPole-v1", actors=actors, deterministic=True, **OPTIONS)
        agent.train(640)
        weights.append(agent.learner.weights().copy())
        if actors == "ray":
            assert "listens on all interfaces" in capfd.readouterr().err
            kill = Kill()
            agent.train(64 * 400, callbacks=kill)
            fleet = agent.loop.fleet
            assert len(kill.killed) == 1
            assert kill.killed[0] not in nodes_of_ray()
            assert fleet.stats().restarts == 1
        agent.close()
    np.testing.assert_array_equal(*weights)


class Until(sw.Callback):
    """Ends a run at a condition, after something was done in its midst."""

    def __init__(self, at: int, do: Callable[[], None], over: Callable[[], bool]) -> None:
        self.at, self.do, self.over = at, do, over
        self.done_at: int | None = None

    def on_train_batch(self, *, step: int, **_: Any) -> bool:
        if self.done_at is None and step >= self.at:
            self.do()
            self.done_at = step
        return self.done_at is None or step < self.done_at + self.at or not self.over()


def two_machines() -> tuple[Any, Any]:
    """A cluster, and the second of its machines."""
    from ray.cluster_utils import Cluster

    cluster = Cluster()

    def start() -> Any:
        cluster.add_node(num_cpus=1)
        return cluster.add_node(num_cpus=1)

    return cluster, patiently(start, cluster.shutdown)


@pytest.mark.usefixtures("no_ray_is_left")
def test_training_goes_on_without_a_machine_that_is_lost() -> None:
    cluster, lost = two_machines()
    try:
        agent = sw.IMPALA("CartPole-v1", actors="ray", address=cluster.address, **OPTIONS)
        until = Until(6400, lambda: cluster.remove_node(lost, allow_graceful=False), lambda: True)
        agent.train(64 * 10_000, callbacks=until)
        assert until.done_at is not None
        stats = agent.loop.fleet.stats()
        assert agent.loop.timesteps >= until.done_at + 6400
        assert stats.alive >= 1
        agent.close()
    finally:
        ray.shutdown()
        cluster.shutdown()


def lose_machines(n_losses: int) -> None:
    """Remove machines and add others, while environments say where they are."""
    cluster, other = two_machines()
    env, _ = id_of(Marked)
    options = {**OPTIONS, "max_in_flight": 4, "max_lag": 1000}
    agent: Any = sw.IMPALA(env, actors="ray", address=cluster.address, **options)
    fleet = agent.loop.fleet
    unrolls: list[Any] = []
    take_until = partial(receive_until, fleet, unrolls)

    def have_acted(since: int) -> bool:
        return {one.actor for one in unrolls[since:]} == {0, 1}

    try:
        fleet.start(agent.learner.weights(), 0)
        for number in range(n_losses):
            take_until(partial(have_acted, len(unrolls)))
            cluster.remove_node(other, allow_graceful=False)
            take_until(lambda: fleet.stats().alive == 1)
            seen = len(unrolls)
            take_until(lambda: len(unrolls) > seen + 4)  # noqa: B023 - the other one goes on
            other = cluster.add_node(num_cpus=1)
            take_until(lambda: fleet.stats().alive == 2)
            assert fleet.stats().restarts == number + 1
        take_until(partial(have_acted, len(unrolls)))
        assert fleet.stats().lost <= n_losses
        check_follows(unrolls)
    finally:
        agent.close()
        ray.shutdown()
        cluster.shutdown()


@pytest.mark.usefixtures("no_ray_is_left")
@pytest.mark.timeout(1800)
def test_machines_are_lost_again_and_again_and_others_take_their_place() -> None:
    lose_machines(4)


def kill_at_random(n_kills: int, draw: random.Random) -> None:
    """Kill actors, whose environments say in which process they are and how far they have come."""
    with placed(Marked, max_in_flight=4, max_lag=1000) as agent:
        fleet = agent.loop.fleet
        unrolls: list[Any] = []

        take_until = partial(receive_until, fleet, unrolls)

        def have_acted(since: int) -> bool:
            return {one.actor for one in unrolls[since:]} == {0, 1}

        fleet.start(agent.learner.weights(), 0)
        for number in range(n_kills):
            take_until(partial(have_acted, len(unrolls)))
            moment = time.monotonic() + draw.uniform(0, 0.05)
            take_until(lambda: time.monotonic() > moment)  # noqa: B023
            os.kill(draw.choice(nodes_of_ray()), signal.SIGKILL)
            take_until(lambda: fleet.stats().restarts == number + 1)  # noqa: B023
            take_until(lambda: fleet.stats().alive == 2)
        take_until(partial(have_acted, len(unrolls)))
        assert fleet.stats().lost <= n_kills
        check_follows(unrolls)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("n_kills", [3, 50])
def test_actors_of_ray_are_killed_at_any_moment(n_kills: int) -> None:
    try:
        kill_at_random(n_kills, random.Random(n_kills))
    finally:
        stop_ray()


SCRIPT = """
import sharpwave as sw

class Tell(sw.Callback):
    def on_train_batch(self, *, updates, **_):
        if updates == 5:
            print("learns", flush=True)

sw.IMPALA("CartPole-v1", actors="ray", n_envs=4, n_steps=8).train(10**9, callbacks=Tell())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_program_that_is_interrupted_leaves_nothing_of_ray(number: signal.Signals) -> None:
    """It waited for its actors for ever, unless the agent was closed."""
    command = [sys.executable, "-c", SCRIPT]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "learns\n"
            below = descendants(program.pid)
            assert any("_RayNode" in command_of(pid) for pid in below)
            program.send_signal(number)
            assert program.wait(LONG) != 0
            wait_for(lambda: not any(map(is_running, below)))
        finally:
            program.kill()


def test_a_ray_of_its_own_is_started_beside_a_cluster_of_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without an address `ray.init` joins what `ray start` has left here."""
    asked: list[Any] = []
    monkeypatch.setattr(ray, "init", lambda address=None, **_: asked.append(address))
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    RayCluster().leave()
    RayCluster("auto").leave()
    assert asked == ["local", "auto"]


def test_a_cluster_that_takes_everybody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setattr(ray, "init", lambda *_, **__: None)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    agent = sw.IMPALA("CartPole-v1", actors="ray", address="10.0.0.1:6379", **OPTIONS)
    with pytest.raises(PermissionError, match="must ask for tokens"):
        agent.train(64)
    agent.close()
