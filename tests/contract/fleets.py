"""The table of fleets, each of which keeps the same contract."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import sharpwave as sw
from sharpwave.distributed import Fleet, Unroll
from tests.fleet_ids import id_of
from tests.waiting import LONG, wait_for

OPTIONS: dict[str, Any] = {"n_envs": 4, "n_steps": 8, "hidden": (8,), "seed": 1}


class Row(NamedTuple):
    """A kind of fleet: how an agent gets one, and what is left of it."""

    agent: Callable[..., AbstractContextManager[Any]]
    """An agent in a world, with options, or one from a `checkpoint`; closed at the end."""
    left: Callable[[], list[str]]
    """Names of threads and processes of actors that are there."""
    may_linger: bool = False
    """Actors elsewhere are sent home, and not waited for."""
    step_timeout: float = 15.0
    """Seconds in which a new process imports and makes an environment of the tests."""

    def check_none_is_left(self) -> None:
        wait_for(lambda: self.left() == [], LONG if self.may_linger else 0.0)


def threads_left() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("sharpwave actor")]


def processes_left() -> list[str]:
    """The command lines of the processes of actors that this process started."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
                line = (folder / "cmdline").read_bytes().decode(errors="replace")
            except OSError:  # it has ended meanwhile
                continue
            if int(parent) == os.getpid() and "process_actor" in line:
                found.append(folder.name)
    return found


def made(world: Any, checkpoint: Path | None = None, **options: Any) -> Any:
    """An agent, new or from a checkpoint."""
    if checkpoint is not None:
        return sw.IMPALA.from_checkpoint(checkpoint, env=world, **options)
    return sw.IMPALA(world, **{**OPTIONS, **options})


def kind_of(actors: str) -> Callable[..., AbstractContextManager[Any]]:
    @contextmanager
    def agent(world: Any = "CartPole-v1", **options: Any) -> Iterator[Any]:
        one = made(world, actors=actors, **options)
        try:
            yield one
        finally:
            one.close()

    return agent


NODES: list[subprocess.Popen[bytes]] = []
"""Processes of actors that were started to join a learner."""


@contextmanager
def joined(world: Any = "CartPole-v1", **options: Any) -> Iterator[Any]:
    """An agent that listens, and as many nodes as it counts on."""
    env, env_kwargs = id_of(world)
    if "checkpoint" not in options:
        options["env_kwargs"] = env_kwargs
    one = made(env, actors="grpc", **options)
    fleet = one.loop.fleet
    fleet.start(one.learner.weights(), one.learner.updates)
    fleet.pause()
    command = [sys.executable, "-m", "sharpwave", "actor", "--learner", fleet.address]
    nodes = [
        subprocess.Popen([*command, "--env", env], stdout=subprocess.DEVNULL)
        for _ in range(one.config.n_actors)
    ]
    NODES.extend(nodes)
    try:
        wait_for(lambda: fleet.stats().alive == len(nodes))
        yield one
    finally:
        one.close()
        try:
            for node in nodes:
                node.wait(LONG)
        finally:
            for node in nodes:
                node.kill()
                node.wait()


def nodes_left() -> list[str]:
    return [str(node.pid) for node in NODES if node.poll() is None]


def start_ray() -> Any:
    """The Ray of the tests of a module, which is slow to start; `stop_ray` ends it."""
    # What every process of a cluster has to know; Ray reads it once.
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = "only for these tests, which listen for seconds"
    import ray

    if not ray.is_initialized():
        options: dict[str, Any] = {"num_cpus": 8, "include_dashboard": False}
        options |= {"logging_level": "ERROR", "log_to_driver": False}
        patiently(lambda: ray.init("local", _node_ip_address="127.0.0.1", **options), ray.shutdown)
    return ray


def patiently(start: Callable[[], Any], clear: Callable[[], None]) -> Any:
    """Start a Ray, again where it took longer than the 30 s that Ray gives itself."""
    for is_last in (False, False, True):
        try:
            return start()
        except Exception as error:  # noqa: PERF203 - it is tried three times
            clear()
            if is_last or "timed out during startup" not in str(error):
                raise
    raise AssertionError


def stop_ray() -> None:
    if "ray" in sys.modules:
        sys.modules["ray"].shutdown()


@contextmanager
def placed(world: Any = "CartPole-v1", **options: Any) -> Iterator[Any]:
    """An agent whose actors Ray has started."""
    start_ray()
    env, env_kwargs = id_of(world)
    if "checkpoint" not in options:
        options["env_kwargs"] = env_kwargs
    one = made(env, actors="ray", **options)
    fleet = one.loop.fleet
    try:
        fleet.start(one.learner.weights(), one.learner.updates)
        fleet.pause()
        wait_for(lambda: fleet.stats().alive == one.config.n_actors)
        yield one
    finally:
        one.close()


def nodes_of_ray() -> list[int]:
    """The processes of Ray that act, of those that this process has started."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                line = (folder / "cmdline").read_bytes().decode(errors="replace")
                if line.startswith("ray::_RayNode") and descends(int(folder.name)):
                    found.append(int(folder.name))
    return found


def descends(pid: int) -> bool:
    """True if a process is a child of this one, or a child's."""
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def placed_left() -> list[str]:
    return list(map(str, nodes_of_ray()))


FLEETS = {
    "threads": Row(kind_of("threads"), threads_left, step_timeout=4.0),
    "processes": Row(kind_of("processes"), processes_left),
    "grpc": Row(joined, nodes_left, may_linger=True),
}
if importlib.util.find_spec("ray") is not None:
    FLEETS["ray"] = Row(placed, placed_left, may_linger=True, step_timeout=60.0)


def received(fleet: Fleet) -> Unroll:
    unroll = fleet.receive(LONG)
    assert unroll is not None
    return unroll


def check_follows(unrolls: list[Unroll]) -> None:
    """Every unroll is whole, begins where the last of its life ended, and came once.

    `Marked` observes the process that it is in and how many steps it has taken there.
    """
    last: dict[int, tuple[float, float]] = {}
    for unroll in unrolls:
        obs: Any = unroll.rollout.obs
        after: Any = unroll.rollout.last_obs
        life, first = obs[0, 0]
        np.testing.assert_array_equal(obs[..., 0], life)
        steps = np.arange(first, first + len(obs), dtype=np.float32)
        np.testing.assert_array_equal(obs[..., 1], np.repeat(steps[:, None], obs.shape[1], axis=1))
        np.testing.assert_array_equal(after[:, 1], first + len(obs))
        if unroll.actor in last and last[unroll.actor][0] == life:
            assert first == last[unroll.actor][1]
        last[unroll.actor] = life, first + len(obs)
