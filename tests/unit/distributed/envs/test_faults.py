"""Servers and connections that die, hang or come back: nothing is done twice, nothing hangs."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc")

from sharpwave.distributed import EnvServer, RemoteVectorEnv
from sharpwave.envs import make_vec_env
from tests import envs
from tests.processes import stop
from tests.unit.distributed.envs.servers import Process, Proxy, serving
from tests.waiting import LONG, wait_for, without_hanging

ACTIONS = np.array([0, 1])


class Stepped(envs.CountingEnv):
    """Counts all steps that it ever took."""

    total = 0

    def __init__(self) -> None:
        super().__init__((1000,))

    def step(self, action: Any) -> Any:
        Stepped.total += 1
        return super().step(action)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A way to a server of one environment that counts its steps."""
    Stepped.total = 0
    with EnvServer(Stepped) as server:
        between = Proxy(server.address)
        yield between
        between.close()


def test_a_lost_answer_is_asked_for_again_and_nothing_steps_twice(proxy: Proxy) -> None:
    env = RemoteVectorEnv(proxy.address, timeout=LONG)
    obs, _ = env.reset(seed=0)
    for number in range(1, 10):
        proxy.to_lose += number % 3 == 0
        obs, *_ = env.step(np.array([1]))
        assert proxy.lost == number // 3
        assert Stepped.total == number
        assert obs[0, 2] == number
    env.close()


def test_a_torn_answer_is_asked_for_again_and_nothing_steps_twice(proxy: Proxy) -> None:
    env = RemoteVectorEnv(proxy.address, timeout=LONG)
    env.reset(seed=0)
    for number in range(1, 10):
        proxy.to_tear_answers += number % 3 == 0
        obs, *_ = env.step(np.array([1]))
        assert proxy.torn_answers == number // 3
        assert Stepped.total == number
        assert obs[0, 2] == number
    env.close()


@pytest.mark.long
def test_random_losses_leave_the_same_trajectory() -> None:
    rng = np.random.default_rng(3)
    local = make_vec_env("CartPole-v1", 2)
    local.reset(seed=1)
    with EnvServer("CartPole-v1", n_envs=2) as server:
        proxy = Proxy(server.address)
        env = RemoteVectorEnv(proxy.address, timeout=LONG)
        env.reset(seed=1)
        for _ in range(60):
            proxy.to_lose += int(rng.choice([0, 1, 3], p=[0.8, 0.15, 0.05]))
            proxy.to_tear_answers += int(rng.choice([0, 1], p=[0.9, 0.1]))
            actions = rng.integers(0, 2, 2)
            for found, wanted in zip(env.step(actions)[:4], local.step(actions)[:4], strict=True):
                np.testing.assert_array_equal(found, wanted)
        assert proxy.lost == proxy.to_lose > 5
        assert proxy.torn_answers == proxy.to_tear_answers > 1
        env.close()
        proxy.close()


def test_a_slow_way_delays_and_loses_nothing(proxy: Proxy) -> None:
    env = RemoteVectorEnv(proxy.address, timeout=LONG)
    env.reset(seed=0)
    proxy.delay = 0.05
    began = time.monotonic()
    for _ in range(3):
        env.step(np.array([1]))
    assert time.monotonic() - began > 0.3
    assert Stepped.total == 3
    proxy.delay = 0.0
    env.close()


def test_requests_go_to_all_servers_before_an_answer_is_awaited() -> None:
    class Slow(envs.CountingEnv):
        together = threading.Barrier(2)

        def step(self, action: Any) -> Any:
            self.together.wait(LONG / 2)  # raises where the other one is not stepping meanwhile
            return super().step(action)

    with EnvServer(Slow) as one, EnvServer(Slow) as other:
        env = RemoteVectorEnv([one.address, other.address], timeout=LONG)
        env.reset(seed=0)
        env.step(ACTIONS)
        env.close()


def test_a_clock_that_jumps_changes_nothing(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    env, now, draw = RemoteVectorEnv(proxy.address), time.time, np.random.default_rng(0)
    env.reset(seed=0)
    monkeypatch.setattr(time, "time", lambda: now() + draw.normal() * 1e8)
    for number in range(1, 10):
        proxy.to_lose += number % 3 == 0
        env.step(np.array([1]))
        assert Stepped.total == number
    assert proxy.lost == 3
    env.close()


@pytest.mark.long
def test_a_server_that_is_killed_is_named_and_its_successor_played() -> None:
    first = Process()
    with serving() as other:
        env = RemoteVectorEnv([other.address, first.address], timeout=8)
        env.reset(seed=0)
        env.step(np.zeros(4, np.int64))
        first.end()
        with (
            without_hanging(),
            pytest.raises((ConnectionError, TimeoutError), match=first.address),
        ):
            env.step(np.zeros(4, np.int64))
        with serving(port=first.port):
            obs, _ = env.reset(seed=0)
            np.testing.assert_array_equal(obs, make_vec_env("CartPole-v1", 4).reset(seed=0)[0])
            env.step(np.zeros(4, np.int64))
            env.close()


@pytest.mark.long
def test_a_server_that_was_started_again_has_lost_the_environments() -> None:
    first = Process()
    env = RemoteVectorEnv(first.address, timeout=LONG)
    env.reset(seed=0)
    first.end()
    with serving(port=first.port):
        with pytest.raises(ConnectionError, match="its environments are lost"):
            env.step(ACTIONS)
        assert env.reset(seed=0)[0].shape == (2, 4)
        env.close()


@pytest.mark.long
def test_a_server_that_hangs_is_late_and_may_return() -> None:
    local = make_vec_env("CartPole-v1", 2)
    local.reset(seed=0)
    with serving() as server:
        env = RemoteVectorEnv(server.address, timeout=8.0)
        env.reset(seed=0)
        stop(server.process.pid)
        with pytest.raises(TimeoutError, match="did not answer within 8 s"):
            env.step(ACTIONS)
        with pytest.raises(TimeoutError, match="did not answer within 8 s"):
            env.reset(seed=0)
        server.process.send_signal(signal.SIGCONT)
        env.reset(seed=0)
        np.testing.assert_array_equal(env.step(ACTIONS)[0], local.step(ACTIONS)[0])
        # A pause that is shorter than the deadline changes nothing.
        stop(server.process.pid)
        threading.Timer(0.3, lambda: server.process.send_signal(signal.SIGCONT)).start()
        np.testing.assert_array_equal(env.step(ACTIONS)[0], local.step(ACTIONS)[0])
        env.close()


@pytest.mark.long
def test_leaving_a_server_that_hangs_takes_seconds_at_most() -> None:
    with serving() as server:
        env = RemoteVectorEnv(server.address)
        env.reset(seed=0)
        before = {thread for thread in threading.enumerate() if thread.name == "sharpwave late"}
        stop(server.process.pid)
        with without_hanging():
            env.close()
        assert not any(thread.is_alive() for thread in before)


@pytest.mark.long
def test_a_client_that_is_killed_frees_its_session() -> None:
    script = (
        "import sys, time, sharpwave.distributed as d; env = d.RemoteVectorEnv(sys.argv[1]); "
        "env.reset(seed=0); print('in', flush=True); time.sleep(60)"
    )
    with EnvServer("CartPole-v1", max_sessions=1, patience=0.2) as server:
        command = [sys.executable, "-c", script, server.address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == "in\n"
            assert server.n_sessions == 1
            client.kill()
        wait_for(lambda: server.n_sessions == 0)
        RemoteVectorEnv(server.address).close()
