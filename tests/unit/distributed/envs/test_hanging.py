"""Environments that do not come back cost a server their session, and nothing else."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("grpc")

import sharpwave as sw
from sharpwave.distributed import EnvServer, RemoteEnvPool, RemoteVectorEnv
from sharpwave.distributed.envs.env_thread import EnvLate, EnvThread
from sharpwave.envs import PythonVectorEnv
from sharpwave.errors import EnvironmentFailed
from tests import envs
from tests.fleet_envs import RELEASE, Hanging
from tests.processes import is_running
from tests.unit.distributed.envs.servers import serving
from tests.waiting import LONG, interrupted, wait_for, without_hanging

STAY, GO = np.array([0]), np.array([1])


class Obedient(envs.CountingEnv):
    """Does not come back from action 1 until it is let go."""

    release = threading.Event()
    entered = threading.Semaphore(0)
    closed = 0

    def step(self, action: Any) -> Any:
        if action == 1:
            self.entered.release()
            self.release.wait(LONG)
        return super().step(action)

    def close(self) -> None:
        Obedient.closed += 1


@pytest.fixture(autouse=True)
def let_go() -> Iterator[None]:
    Obedient.release, Obedient.entered = threading.Event(), threading.Semaphore(0)
    Obedient.closed = 0
    yield
    Obedient.release.set()
    RELEASE.set()
    wait_for(lambda: not any(one.name == "sharpwave environments" for one in threading.enumerate()))
    RELEASE.clear()


HANGS = 3.0
"""Seconds that whoever comes back at all takes less than, also where a machine is busy."""


def playing(server: Any, timeout: float = LONG) -> RemoteVectorEnv:
    """A client that has begun to play, and gives up so many seconds after a step from now on."""
    env = RemoteVectorEnv(server.address, timeout=LONG)
    env.reset(seed=0)
    for connection in env._connections:
        connection.timeout = timeout
    return env


def is_stepping(server: EnvServer) -> bool:
    """True if a session waits for its environments."""
    return any(seat.session._lock.locked() for seat in server._sessions._seats.values())


@pytest.mark.long
def test_a_client_hears_which_environment_hangs_and_its_session_is_free() -> None:
    with EnvServer(Obedient, n_envs=2, max_sessions=1, step_timeout=HANGS) as server:
        for _ in range(2):  # more than there are sessions
            env = playing(server)
            env.step(np.array([0, 0]))
            with pytest.raises(EnvironmentFailed, match="environment 1 did not come back") as info:
                env.step(np.array([0, 1]))
            assert info.value.env_index == 1
            assert "release.wait" in info.value.trace
            wait_for(lambda: server.n_sessions == 0)
            env.close()
        assert Obedient.closed == 0
        Obedient.release.set()
        wait_for(lambda: Obedient.closed == 4)


def test_sessions_of_lost_clients_are_freed_while_environments_hang() -> None:
    with EnvServer(Obedient, max_sessions=2, patience=0.2) as server:
        hanging, other = playing(server, timeout=1.0), playing(server)
        with pytest.raises(TimeoutError, match="did not answer within 1 s"):
            hanging.step(GO)
        other._connections[0].drop()
        wait_for(lambda: server.n_sessions == 0, LONG / 4)
        again = playing(server)
        again.step(STAY)
        for env in (again, hanging, other):
            env.close()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_server_closes_while_environments_hang(mode: str) -> None:
    server = EnvServer(Hanging, n_envs=2, mode=mode, env_kwargs={"in_step": 1}).start()
    env = playing(server, timeout=1.0)
    with pytest.raises(TimeoutError, match="did not answer within 1 s"):
        env.step(np.zeros(2, np.int64))
    wait_for(lambda: is_stepping(server))  # the request may take longer than the client waits
    with without_hanging():
        server.close()
    env.close()


def test_a_client_that_is_interrupted_in_a_step_begins_anew_or_leaves() -> None:
    """Its `close` raised an error of gRPC's own, or never came back."""
    with EnvServer(Obedient, max_sessions=2) as server:
        env = playing(server)
        first, _ = env.reset(seed=0)
        with interrupted():
            env.step(GO)
        with pytest.raises(gym.error.ResetNeeded):
            env.step(STAY)
        Obedient.release.set()
        again, _ = env.reset(seed=0)
        np.testing.assert_array_equal(again[:, 2], first[:, 2])  # the steps of an episode
        env.step(STAY)
        Obedient.release.clear()
        with interrupted():
            env.step(GO)
        Obedient.release.set()
        with without_hanging():
            env.close()
        wait_for(lambda: server.n_sessions == 0)


@pytest.mark.long
def test_processes_of_environments_that_hang_are_killed() -> None:
    options: dict[str, Any] = {"env_kwargs": {"in_step": 2}, "step_timeout": 2 * HANGS}
    with EnvServer(Hanging, n_envs=2, mode="async", **options) as server:
        env = playing(server)
        before = [one.pid or 0 for one in multiprocessing.active_children()]
        assert len(before) == 2
        env.step(np.zeros(2, np.int64))
        with pytest.raises(EnvironmentFailed, match="did not come back within 6 s"):
            env.step(np.zeros(2, np.int64))
        wait_for(lambda: not any(map(is_running, before)))
        env.close()


@pytest.mark.long
def test_actors_find_a_place_however_often_their_environments_hang() -> None:
    """Each life of an actor took another place of the server, until none was left."""
    env, kwargs = "tests.fleet_ids:Hanging-v0", {"in_step": 30}
    with EnvServer(env, env_kwargs=kwargs, max_sessions=2, step_timeout=HANGS) as server:
        agent: Any = sw.IMPALA(
            env,
            env_kwargs=kwargs,
            n_actors=1,
            worker_addresses=[server.address],
            actors="threads",
            n_steps=8,
            hidden=(8,),
            seed=1,
        )
        metrics = agent.train(8 * 3 * 4)
        assert metrics["restarts"] >= 3
        agent.close()


def test_calls_of_rlox_end_too() -> None:
    with EnvServer(Obedient, step_timeout=HANGS) as server:
        pool = RemoteEnvPool(server.address, timeout=LONG)
        pool.connect()
        pool.reset_all(seed=0)
        with pytest.raises(EnvironmentFailed, match="did not come back within 3 s"):
            pool.step_all(GO)
        pool.close()


def test_environments_that_hang_when_they_are_made_take_no_session() -> None:
    release, made = threading.Event(), []

    def make() -> Any:
        made.append(0)
        if len(made) > 1:  # the first is made before anybody asks
            release.wait(LONG)
        return envs.CountingEnv()

    with EnvServer(make, max_sessions=2, step_timeout=HANGS) as server:
        first = playing(server)
        with pytest.raises(TimeoutError, match="did not come back within 3 s"):
            RemoteVectorEnv(server.address, timeout=LONG)
        release.set()
        second = playing(server)
        for env in (first, second):
            env.close()


def test_environments_that_were_passed_in_are_played_again_once_they_are_back() -> None:
    made = PythonVectorEnv([Obedient])
    with EnvServer(made, step_timeout=HANGS) as server:
        env = playing(server)
        with pytest.raises(EnvironmentFailed, match="did not come back"):
            env.step(GO)
        wait_for(lambda: server.n_sessions == 0)
        with pytest.raises(ConnectionError, match="have not come back from a step"):
            env.reset()
        Obedient.release.set()
        wait_for(lambda: not server._kept_hangs)
        env.reset(seed=0)
        env.step(STAY)
        env.close()
    made.close()


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ctrl_c_ends_a_command_whose_environments_hang(number: signal.Signals) -> None:
    with serving("tests.fleet_ids:Hanging-v0", "--env-kwargs", "in_step=1") as server:
        env = playing(server, timeout=1.0)
        with pytest.raises(TimeoutError, match="did not answer within 1 s"):
            env.step(STAY)
        server.process.send_signal(number)
        assert server.process.wait(LONG / 4) == 0
        env.close()


def test_a_thread_that_is_late_is_asked_no_more_and_finishes_later() -> None:
    release, finished = threading.Event(), threading.Event()
    thread = EnvThread(1.0)
    assert thread.call(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        thread.call(lambda: 1 / 0)
    with pytest.raises(EnvLate, match="an environment did not come back within"):
        thread.call(lambda: release.wait(LONG))
    with pytest.raises(EnvLate, match="did not come back before"):
        thread.call(lambda: 3)
    assert not thread.end(finished.set)
    release.set()
    assert finished.wait(LONG)
