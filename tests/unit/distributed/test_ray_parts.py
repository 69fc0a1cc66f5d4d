"""Ray where it is full, or does not start something: a stand-in plays its part."""

from __future__ import annotations

import os
import socket
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("grpc")

import sharpwave as sw
from sharpwave.distributed import ray_cluster
from sharpwave.distributed.ray_cluster import RayCluster
from sharpwave.distributed.replay import RayShards, ray_shards
from sharpwave.distributed.replay.server import ReplayServer, ShardOptions
from sharpwave.distributed.security import Access
from sharpwave.runs import ray_evaluation
from sharpwave.runs.evaluation import EvaluationResult
from sharpwave.runs.ray_evaluation import RayEvaluator
from tests.waiting import wait_for


class Group:
    """A placement group, for which there is room or not."""

    def __init__(self, ray: StandIn) -> None:
        self.ray = ray

    def wait(self, seconds: float) -> bool:
        self.ray.waited.append(seconds)
        return self.ray.has_room


class StandIn:
    """A Ray that runs nothing: handles are functions, which `get` calls."""

    class exceptions:  # noqa: N801 - Ray's name
        GetTimeoutError = type("GetTimeoutError", (Exception,), {})

    def __init__(
        self, has_room: bool = True, *, version: str = "2.60.0", is_there: bool = True
    ) -> None:
        self.has_room, self.is_there = has_room, is_there
        self.__version__ = version
        self.waited: list[float] = []
        self.removed = 0
        self.ended: list[Any] = []
        self.util = types.SimpleNamespace(
            placement_group=lambda *_, **__: Group(self),
            remove_placement_group=self._remove,
            get_node_ip_address=lambda: "127.0.0.1",
            scheduling_strategies=types.SimpleNamespace(
                PlacementGroupSchedulingStrategy=lambda *_, **__: None
            ),
        )

    def _remove(self, _: Any) -> None:
        self.removed += 1

    def is_initialized(self) -> bool:
        return self.is_there

    def init(self, *_: Any, **__: Any) -> None:
        self.is_there = True

    def shutdown(self) -> None:
        self.is_there = False

    def kill(self, _: Any) -> None:
        pass

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 4.0}

    def available_resources(self) -> dict[str, float]:
        return {"CPU": 1.0}

    def remote(self, kind: type) -> Any:
        """An actor: each of its methods gives a handle, and does nothing."""

        def made() -> Any:
            return types.SimpleNamespace(
                free_address=types.SimpleNamespace(remote=lambda _: kind().free_address(True)),
                serve=types.SimpleNamespace(remote=lambda *told: Handle(told)),
            )

        options = types.SimpleNamespace(remote=made)
        return types.SimpleNamespace(options=lambda **_: options)

    def wait(self, handles: list[Any], *, num_returns: int, timeout: float | None) -> Any:
        del num_returns, timeout
        return [one for one in handles if one in self.ended], []

    def get(self, what: Any, timeout: float | None = None) -> Any:
        if isinstance(what, list):
            if timeout is None or self.ended == ["never"]:
                raise self.exceptions.GetTimeoutError
            return what
        return what()


class Handle:
    """The result of a call of a shard."""

    def __init__(self, told: tuple[Any, ...]) -> None:
        self.told = told
        self.error: Exception = OSError(98, "cannot listen there: Address already in use")

    def __call__(self) -> Any:
        raise self.error


@pytest.fixture
def join(monkeypatch: pytest.MonkeyPatch) -> Callable[[StandIn], None]:
    def join(ray: StandIn) -> None:
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        monkeypatch.setattr(ray_cluster, "require", lambda *_, **__: ray)
        monkeypatch.setattr(ray_cluster, "_PATIENCE", 12.0)

    return join


def test_a_ray_that_cannot_ask_for_tokens_is_refused(join: Any) -> None:
    """It takes no notice of the mode, and everybody got in."""
    join(StandIn(version="2.51.1"))
    with pytest.raises(PermissionError, match=r"Ray must be 2\.52 or newer, .* got 2\.51\.1"):
        RayCluster("auto")
    join(StandIn(version="2.52.0"))
    RayCluster("auto").leave()


def test_a_cluster_that_takes_everybody_is_not_even_joined(join: Any, monkeypatch: Any) -> None:
    ray = StandIn(is_there=False)
    join(ray)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(PermissionError, match="must ask for tokens"):
        RayCluster("auto")
    assert not ray.is_there


def test_a_cluster_that_is_not_there_is_named_at_once(join: Any) -> None:
    """Ray tried for minutes, and ended with an error of its own."""
    ray = StandIn(is_there=False)
    join(ray)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConnectionError, match=f"no Ray cluster answers at {address}: Conn"):
            RayCluster(address)
        taken.listen()
        RayCluster(address).leave()
    with pytest.raises(ValueError, match=r"address must be host:port, got '10\.0\.0\.1'"):
        RayCluster("10.0.0.1")
    for address in ("10.0.0.1", "ayto"):
        with pytest.raises(ValueError, match=f"address must be host:port, got '{address}'"):
            sw.IMPALA("CartPole-v1", actors="ray", address=address)


@pytest.mark.parametrize(
    ("version", "mode", "who"),
    [
        ("2.60.0", None, "holds its token"),
        ("2.60.0", "disabled", "reaches it"),
        ("2.51.1", None, "reaches it"),
    ],
)
def test_a_ray_of_its_own_asks_for_tokens_unless_it_is_told_otherwise(
    version: str, mode: str | None, who: str, join: Any, monkeypatch: Any, capsys: Any
) -> None:
    ray = StandIn(version=version, is_there=False)
    join(ray)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.delenv("RAY_AUTH_MODE")
    if mode is not None:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    cluster = RayCluster()
    assert os.environ["RAY_AUTH_MODE"] == (mode or "token")
    assert f"whoever {who} may run code here" in capsys.readouterr().err
    cluster.leave()
    assert os.environ.get("RAY_AUTH_MODE") == mode  # which says nothing of other clusters
    assert not ray.is_there


def test_a_cluster_without_room_is_named_with_the_cpus(join: Any, capsys: Any) -> None:
    ray = StandIn(has_room=False)
    join(ray)
    with pytest.raises(
        ConnectionError, match=r"not had 3 x 2 CPUs free within 12 s: .* 4, of which 1 are free"
    ):
        RayCluster("auto").place(object, 3, 2.0)
    assert ray.waited == [10.0, 2.0]
    assert ray.removed == 1
    assert "waiting for 3 x 2 CPUs of Ray" in capsys.readouterr().err
    with pytest.raises(ConnectionError, match="2 x 1 CPUs free"):
        RayShards(2, cluster="auto")


def test_actors_without_room_end_a_run_and_may_try_again(join: Any) -> None:
    join(StandIn(has_room=False))
    agent = sw.IMPALA("CartPole-v1", n_actors=3, n_envs=2, actors="ray", address="auto", seed=0)
    for _ in range(2):
        with pytest.raises(ConnectionError, match="3 x 1 CPUs free"):
            agent.train(64)
    agent.close()


def test_nobody_is_told_to_start_actors_that_ray_starts(join: Any, capsys: Any) -> None:
    ray = StandIn()
    ray.remote = lambda _: types.SimpleNamespace(  # type: ignore[method-assign, assignment]
        options=lambda **_: types.SimpleNamespace(
            remote=lambda: types.SimpleNamespace(act=types.SimpleNamespace(remote=lambda *_: "act"))
        )
    )
    join(ray)
    agent: Any = sw.IMPALA("CartPole-v1", n_actors=1, actors="ray", address="auto", seed=0)
    fleet = agent.loop.fleet
    fleet.start(agent.learner.weights(), 0)
    fleet._patience = 0.0
    with pytest.raises(ConnectionError, match=r"0 of 1 actors are there.*`ray status`"):
        fleet.receive(0.1)
    assert "sharpwave actor" not in capsys.readouterr().err
    agent.close()


def test_shards_that_ray_does_not_start_are_named(join: Any) -> None:
    ray = StandIn()
    ray.ended = ["never"]
    join(ray)
    with pytest.raises(ConnectionError, match="Ray has not started 2 shards within 120 s"):
        RayShards(2, cluster="auto")


def test_a_shard_that_cannot_listen_is_named_at_the_start(
    join: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = StandIn()
    join(ray)
    monkeypatch.setattr(ray, "wait", lambda handles, **_: (handles, []))
    with pytest.raises(ConnectionError, match=r"gone for good: 127\.0\.0\.1:\d+: .*already in use"):
        RayShards(1, cluster="auto")


def test_a_shard_that_is_gone_for_good_is_told_of_and_raised(
    join: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    ray, servers = StandIn(), []
    handles: list[Handle] = []

    def serve(*told: Any) -> Handle:
        options, host, port, token = told
        servers.append(ReplayServer(options, host, port, Access(token=token)))
        servers[-1].__enter__()
        handles.append(Handle(told))
        return handles[-1]

    shard = types.SimpleNamespace(
        free_address=types.SimpleNamespace(
            remote=lambda _: ray_shards._RayShard().free_address(True)
        ),
        serve=types.SimpleNamespace(remote=serve),
    )
    join(ray)
    monkeypatch.setattr(RayCluster, "place", lambda *_: [shard, shard])
    monkeypatch.setattr(ray_shards, "LOOK", 0.1)
    with RayShards(2, ShardOptions(capacity=10), cluster="auto") as shards:
        shards.check()
        shards.replay(seed=0).close()
        ray.ended = [handles[1]]
        said = f"{shards.addresses[1]}: .*already in use"
        wait_for(lambda: shards._gone)
        for _ in range(2):
            with pytest.raises(ConnectionError, match=said):
                shards.replay(seed=0)
    for server in servers:
        server.__exit__(None, None, None)
    assert capsys.readouterr().err.count("gone for good") == 1


def test_results_are_there_although_another_evaluation_raised(
    monkeypatch: pytest.MonkeyPatch, join: Any
) -> None:
    ray = StandIn()
    join(ray)
    monkeypatch.setattr(RayCluster, "place", lambda *_: ["one", "two", "three"])
    agent = sw.PPO("CartPole-v1", n_envs=2, n_steps=32, seed=0)
    result = agent.evaluate(1)

    def fail() -> EvaluationResult:
        raise ZeroDivisionError("of an evaluation")

    def succeed() -> EvaluationResult:
        return result

    def succeed_too() -> EvaluationResult:
        return result

    with ray_evaluation.RayEvaluator(agent, 3, cluster="auto") as evaluator:
        assert isinstance(evaluator, RayEvaluator)
        for step, handle in enumerate((succeed_too, fail, succeed)):
            evaluator._running[handle] = 10 * step, evaluator._free.pop()
        ray.ended = [succeed, fail, succeed_too]
        with pytest.raises(ZeroDivisionError, match="of an evaluation"):
            evaluator.finished()
        assert (evaluator.n_running, len(evaluator._free)) == (0, 3)
        assert evaluator.finished() == [(0, result), (20, result)]
        assert evaluator.finished() == []
    agent.close()
