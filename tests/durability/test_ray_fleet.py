"""Actors that Ray starts: they make what threads make, and come back when they are killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from tests.contract.fleets import OPTIONS, nodes_of_ray
from tests.waiting import wait_for

# What every process of a cluster has to know; Ray reads it once.
os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN"] = "only for these tests, which listen for seconds"
ray = pytest.importorskip("ray")

pytestmark = [
    pytest.mark.long,
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


@pytest.mark.usefixtures("no_ray_is_left")
def test_training_goes_on_without_a_machine_that_is_lost() -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        lost = cluster.add_node(num_cpus=1)
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


def test_a_cluster_that_takes_everybody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setattr(ray, "init", lambda *_, **__: None)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    agent = sw.IMPALA("CartPole-v1", actors="ray", address="10.0.0.1:6379", **OPTIONS)
    with pytest.raises(PermissionError, match="must ask for tokens"):
        agent.train(64)
    agent.close()
