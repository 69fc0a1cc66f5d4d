"""Learners that are interrupted, whatever their actors do, and what fleets meet at their start."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc")

import sharpwave as sw
from sharpwave.distributed import launch
from sharpwave.distributed.codec import pack
from sharpwave.distributed.grpc_fleet import PROTOCOL, SERVICE
from sharpwave.distributed.wire import Method, serve, service
from sharpwave.errors import WireError
from tests.contract.fleets import OPTIONS
from tests.processes import actors_of, descendants, is_running
from tests.unit.distributed.remote import Acting
from tests.waiting import LONG, wait_for

SCRIPT = """
import sys
import threading
import time
import sharpwave as sw
from tests.fleet_ids import id_of
from tests import fleet_envs
kind, world = sys.argv[1:]
env, _ = id_of(getattr(fleet_envs, world))
kwargs = {"in_step": 3} if world == "Hanging" else {}
options = {"n_envs": 1, "n_steps": 5000, "hidden": (8,), "seed": 1, "env_kwargs": kwargs}
agent = sw.IMPALA(env, actors=kind, **options)
agent.loop.fleet.start(agent.learner.weights(), 0)
print(getattr(agent.loop.fleet, "address", "here"), flush=True)

def tell():
    while agent.loop.fleet.stats().busy < 2:
        time.sleep(0.01)
    print("busy", flush=True)

threading.Thread(target=tell, daemon=True).start()
try:
    agent.train(10**9)
finally:
    agent.close()
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "world"),
    [
        ("threads", "Slow"),
        ("processes", "Slow"),
        ("processes", "Hanging"),
        ("grpc", "Slow"),
        ("grpc", "Hanging"),
        ("grpc", "nobody"),
    ],
)
def test_ctrl_c_ends_a_learner_in_the_midst_of_long_unrolls(kind: str, world: str) -> None:
    """It waited for the unrolls under way, which take minutes or never end."""
    arguments = [kind, "Slow" if world == "nobody" else world]
    learner = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    nodes: list[subprocess.Popen[bytes]] = []
    assert learner.stdout is not None
    with learner:
        address = learner.stdout.readline().strip()
        if kind == "grpc" and world != "nobody":
            command = [sys.executable, "-m", "sharpwave", "actor", "--learner", address]
            command += ["--env", f"tests.fleet_ids:{world}-v0", "--actors", "2"]
            nodes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        workers = 2 * (kind != "threads" and world != "nobody")
        parent = nodes[0].pid if nodes else learner.pid
        try:
            wait_for(lambda: len(actors_of(parent)) == workers)
            if world != "nobody":
                assert learner.stdout.readline() == "busy\n"
            time.sleep(0.5)  # they are in the midst of it
            below = [child for pid in {learner.pid, parent} for child in descendants(pid)]
            assert len(actors_of(parent)) == workers
            learner.send_signal(signal.SIGINT)
            assert learner.wait(LONG) != 0
            assert [node.wait(LONG) for node in nodes] == [0] * len(nodes)
        finally:
            learner.kill()
            for node in nodes:
                node.kill()
                node.wait()
        wait_for(lambda: not any(map(is_running, below)))
    names = [file.name for file in Path("/dev/shm").iterdir()]  # Python's have the process
    assert not [name for name in names if any(f"-{pid}-" in name for pid in (parent, *below))]


LEARNER = """
import sys
import sharpwave as sw
agent = sw.IMPALA("CartPole-v1", actors="grpc", n_actors=1, n_envs=4, n_steps=8, hidden=(8,))
agent.loop.fleet.start(agent.learner.weights(), 0)
print(agent.loop.fleet.address, flush=True)
agent.train(64)
if "raises" in sys.argv:
    raise RuntimeError("of the script")
"""
SERVERS = """
import sys
import numpy as np
import sharpwave as sw
from sharpwave.distributed import EnvServer, RemoteVectorEnv
from sharpwave.distributed.replay import ReplayServer, ShardOptions
envs = EnvServer("CartPole-v1").start()
env = RemoteVectorEnv(envs.address)
env.reset(seed=0)
shard = ReplayServer(ShardOptions(capacity=100))
replay = sw.ShardedReplay([shard.address], prefetch=1)
sw.DQN(env, buffer=replay, learning_starts=8, batch_size=4, hidden=(8,)).train(20)
if "raises" in sys.argv:
    raise RuntimeError("of the script")
"""


@pytest.mark.long
@pytest.mark.parametrize("how", ["ends", "raises"])
@pytest.mark.parametrize("script", [LEARNER, SERVERS], ids=["learner", "servers"])
def test_a_program_ends_that_closes_nothing(script: str, how: str) -> None:
    """Its last line was carried out, and it waited for its clients for ever."""
    command = [sys.executable, "-c", script, how]
    actors: list[subprocess.Popen[bytes]] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        try:
            if script == LEARNER:
                assert program.stdout is not None
                address = program.stdout.readline().strip()
                join = [sys.executable, "-m", "sharpwave", "actor", "--learner", address]
                actors.append(subprocess.Popen(join, stdout=subprocess.DEVNULL))
            _, said = program.communicate(timeout=LONG)
            assert program.returncode == (how == "raises"), said
            assert ("RuntimeError: of the script" in said) == (how == "raises")
            assert [actor.wait(LONG) for actor in actors] == [0] * len(actors)
        finally:
            program.kill()
            for actor in actors:
                actor.kill()
                actor.wait()


@pytest.mark.long
def test_a_command_that_nobody_has_joined_ends_by_ctrl_c(tmp_path: Path) -> None:
    """It stops at an update that never comes."""
    command = [sys.executable, "-m", "sharpwave", "train", "impala", "CartPole-v1"]
    options = ["--actors", "grpc", "--run-dir", str(tmp_path / "run"), "--quiet"]
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as learner:
        assert learner.stderr is not None
        while "waiting for actors" not in learner.stderr.readline():
            assert learner.poll() is None
        time.sleep(0.5)
        learner.send_signal(signal.SIGINT)
        assert learner.wait(LONG) == 130
        learner.stderr.read()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["threads", "processes", "grpc"])
def test_a_clock_that_jumps_changes_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent: Any = sw.IMPALA("CartPole-v1", actors=kind, **OPTIONS)
    fleet, now = agent.loop.fleet, time.time
    # On a busy machine, an actor that is slow to give a sign of life is not taken for dead.
    monkeypatch.setattr(launch, "SILENCE", LONG)
    if kind == "grpc":
        fleet._deadline = LONG
    fleet.start(agent.learner.weights(), 0)
    node = Acting(fleet.address, n_actors=2) if kind == "grpc" else None
    draw = np.random.default_rng(0)
    monkeypatch.setattr(time, "time", lambda: now() + draw.normal() * 1e8)
    agent.train(6400)
    stats = fleet.stats()
    assert (stats.alive, stats.failures, stats.restarts, stats.lost) == (2, 0, 0, 0)
    monkeypatch.undo()
    agent.close()
    assert node is None or node.wait() is None


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        agent = sw.IMPALA("CartPole-v1", actors="grpc", address=address, **OPTIONS)
        with pytest.raises(OSError, match=f"cannot listen at {address}: Address already in use"):
            agent.train(64)
    agent.close()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (pack("welcome", meta={"protocol": PROTOCOL + 1}), "must speak protocol 1, got 2"),
        (pack("ask"), "must say welcome, got 'ask'"),
        (pack("welcome", meta={"protocol": PROTOCOL}), "sent no recipe"),
        (pack("welcome", meta={"protocol": PROTOCOL})[:-3], "bytes must be whole"),
    ],
)
def test_a_learner_of_another_version_is_named(answer: bytes, says: str) -> None:
    def join(messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        del messages, context
        yield answer

    methods = [Method("Join", join, stream_in=True, stream_out=True)]
    with serve([service(SERVICE, methods)]) as learner:
        error = Acting(learner.address, patience=LONG).wait()
        assert isinstance(error, WireError)
        assert says in str(error)
