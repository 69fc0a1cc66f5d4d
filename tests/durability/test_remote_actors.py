"""Actors and learners on either side of a wire, killed, stopped and started again."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.waiting import LONG, receive_until, wait_for, without_hanging

pytest.importorskip("grpc")

import sharpwave as sw
from sharpwave.cli.main import main
from sharpwave.distributed.codec import pack
from sharpwave.distributed.grpc_fleet import GrpcFleet
from sharpwave.distributed.security import TOKEN_VARIABLE
from sharpwave.distributed.wire import connect
from sharpwave.storage.run_folder import RunFolder
from tests.contract.fleets import check_follows
from tests.fleet_envs import Marked
from tests.fleet_ids import id_of
from tests.processes import actors_of, is_running, stop
from tests.unit.distributed.remote import WEIGHTS, Liar, address_of, listening, unroll_bytes

TOKEN = "a-token-of-the-tests"
OPTIONS: dict[str, Any] = {"n_envs": 4, "n_steps": 8, "hidden": (8,), "seed": 1}


class Commands:
    """Commands of this library, each a process."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[str]] = []

    def actor(self, address: str, *more: str) -> subprocess.Popen[str]:
        return self.start("actor", "--learner", address, *more)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A command, which lists of processes show without the token."""
        started = subprocess.Popen(
            [sys.executable, "-m", "sharpwave", *arguments],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, TOKEN_VARIABLE: TOKEN, "OMP_NUM_THREADS": "1"},
        )
        self._started.append(started)
        return started

    def close(self) -> None:
        for one in self._started:
            one.kill()
            one.communicate()


@pytest.fixture
def commands() -> Iterator[Commands]:
    commands = Commands()
    yield commands
    commands.close()


def take(fleet: GrpcFleet, count: int) -> list[int]:
    """The actors of so many unrolls."""
    found: list[int] = []
    while len(found) < count:
        unroll = fleet.receive(LONG)
        assert unroll is not None
        found.append(unroll.actor)
    return found


@pytest.mark.long
def test_others_go_on_where_an_actor_is_killed_and_it_may_return(commands: Commands) -> None:
    with listening(deadline=LONG) as fleet:  # whoever is killed is missed at once
        steady = commands.actor(address_of(fleet))
        wait_for(lambda: fleet.stats().alive == 1)  # so that it is the first
        draw = random.Random(0)
        for killed in range(1, 4):
            mortal = commands.actor(address_of(fleet))
            wait_for(lambda: fleet.stats().alive == 2)
            take(fleet, draw.randrange(1, 200))
            os.kill(mortal.pid, signal.SIGKILL)
            with without_hanging():
                while fleet.stats().alive == 2:
                    take(fleet, 10)
            assert fleet.stats().restarts == killed - 1
            assert fleet.stats().lost <= killed
        take(fleet, fleet.stats().waiting)  # what the last one had finished
        assert set(take(fleet, 20)) == {0}
        fleet.stop()
        assert steady.wait(LONG) == 0


def kill_at_random(commands: Commands, n_kills: int, draw: random.Random) -> None:
    """Kill nodes and processes of their actors, whose environments say where they are."""
    env, _ = id_of(Marked)
    options: dict[str, Any] = {**OPTIONS, "n_actors": 2, "max_in_flight": 4, "max_lag": 1000}
    agent: Any = sw.IMPALA(env, actors="grpc", **options)
    fleet = agent.loop.fleet
    unrolls: list[Any] = []
    fleet._deadline = LONG  # whoever is killed is missed at once

    take_until = partial(receive_until, fleet, unrolls)

    def have_acted(since: int) -> bool:
        return {one.actor for one in unrolls[since:]} == {0, 1}

    fleet.start(agent.learner.weights(), 0)
    nodes = [commands.actor(fleet.address, "--env", env) for _ in range(2)]
    for number in range(n_kills):
        seen = len(unrolls)
        take_until(partial(have_acted, seen))  # both, since the last was killed
        moment = time.monotonic() + draw.uniform(0, 0.05)
        take_until(lambda: time.monotonic() > moment)  # noqa: B023
        node = nodes.pop(0)
        if draw.random() < 0.5:
            wait_for(lambda: actors_of(node.pid))  # noqa: B023 - it may be on its way back
            os.kill(actors_of(node.pid)[0], signal.SIGKILL)
            nodes.append(node)
        else:
            node.kill()
            node.wait()
            nodes.append(commands.actor(fleet.address, "--env", env))
        take_until(lambda: fleet.stats().restarts == number + 1)  # noqa: B023
        take_until(lambda: fleet.stats().alive == 2)
    seen = len(unrolls)
    take_until(partial(have_acted, seen))
    stats = fleet.stats()
    assert stats.restarts == n_kills
    assert stats.lost <= n_kills
    check_follows(unrolls)
    agent.close()
    assert [node.wait(LONG) for node in nodes] == [0, 0]


@pytest.mark.long
def test_killed_actors_are_back_and_no_unroll_is_torn_or_twice(commands: Commands) -> None:
    kill_at_random(commands, 4, random.Random(3))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_actors_elsewhere_are_killed_at_fifty_moments(commands: Commands) -> None:
    kill_at_random(commands, 50, random.Random(4))


@pytest.mark.long
def test_a_stopped_actor_is_given_up_at_its_deadline_and_comes_back(commands: Commands) -> None:
    with listening(deadline=8.0) as fleet:
        steady, sleeper = (commands.actor(address_of(fleet)) for _ in range(2))
        wait_for(lambda: fleet.stats().alive == 2)
        stop(sleeper.pid)
        with without_hanging():
            while fleet.stats().alive == 2:
                take(fleet, 10)
        fleet.pause()  # waits for nobody who is gone
        fleet.start(WEIGHTS, 1)
        os.kill(sleeper.pid, signal.SIGCONT)
        wait_for(lambda: fleet.stats().alive == 2)
        assert fleet.stats().restarts >= 1
        seen = {0, 1}
        while seen:
            seen -= set(take(fleet, 1))
        fleet.stop()
        assert [steady.wait(LONG), sleeper.wait(LONG)] == [0, 0]


@pytest.mark.long
def test_ctrl_c_ends_actors_in_time_and_leaves_no_process(commands: Commands) -> None:
    agent: Any = sw.IMPALA("CartPole-v1", actors="grpc", env_mode="sync", **OPTIONS)
    fleet = agent.loop.fleet
    fleet.start(agent.learner.weights(), 0)
    node = commands.actor(fleet.address, "--actors", "2")
    take(fleet, 4)
    # A process for each actor in environments of Python.
    wait_for(lambda: len(actors_of(node.pid)) == 2)
    actors = actors_of(node.pid)
    node.send_signal(signal.SIGINT)
    with without_hanging():
        assert node.wait(LONG) == 0
    wait_for(lambda: not any(map(is_running, actors)))
    wait_for(lambda: fleet.stats().alive == 0)
    agent.close()


TRAIN = ["train", "impala", "CartPole-v1", "--actors", "grpc", "--n-envs", "4", "--quiet"]


@pytest.mark.long
def test_actors_wait_for_a_learner_that_is_killed_and_resumed_bit_for_bit(
    commands: Commands, tmp_path: Path
) -> None:
    with listening() as fleet:
        address = address_of(fleet)  # which is free afterwards
    run = tmp_path / "run"
    same = ["--deterministic", "--total-timesteps", "400_000", "--eval-freq", "0", "--no-preset"]
    same += ["--seed", "3", "--checkpoint-freq", "20_000"]
    learner = commands.start(*TRAIN, "--address", address, "--run-dir", str(run), *same)
    actor = commands.actor(address, "--actors", "2")
    wait_for(lambda: list(run.glob("checkpoints/*")))
    learner.kill()
    learner.wait()
    time.sleep(0.3)
    assert actor.poll() is None
    resumed = commands.start("resume", str(run), "--quiet")
    said, _ = resumed.communicate(timeout=2 * LONG)
    assert resumed.returncode == 0, said
    said, _ = actor.communicate(timeout=LONG)
    assert actor.returncode == 0, said
    assert said.count("joined") == 2
    assert "waiting for" in said
    assert RunFolder(run).is_ours
    whole = tmp_path / "whole"
    assert main([*TRAIN, "--actors", "threads", "--run-dir", str(whole), *same]) == 0
    agents = [sw.IMPALA.from_checkpoint(RunFolder(one).latest_checkpoint) for one in (whole, run)]
    assert [agent.timesteps for agent in agents] == [400_384, 400_384]
    np.testing.assert_array_equal(*(agent.learner.weights() for agent in agents))
    for agent in agents:
        agent.close()
    # The token is nowhere in what was written.
    for file in run.rglob("*"):
        if file.is_file():
            assert TOKEN.encode() not in file.read_bytes()


@pytest.mark.long
def test_an_actor_without_a_learner_leaves_after_its_patience(commands: Commands) -> None:
    with listening() as fleet:
        address = address_of(fleet)
    alone = commands.actor(address, "--patience", "0.2")
    said, _ = alone.communicate(timeout=LONG)
    assert alone.returncode == 1
    why = "(cannot be reached|did not answer in time)"  # which of them, a busy machine decides
    assert re.search(rf"the learner has not answered for \d+ s: {address} {why}", said)


def forged_unrolls() -> Iterator[bytes]:
    """Unrolls that are well formed, each with a count or a column that cannot be."""
    counts: list[Any] = [-1, 2**53, 1.5, True, "1", None]
    for name in ("failures", "restarts", "lost"):
        yield from (unroll_bytes(meta={name: count}) for count in counts)
    for name in ("version", "serial", "actor"):
        yield from (unroll_bytes(meta={name: wrong}) for wrong in (-1, 1, 2**60, 0.5, "0", None))
    flags, row = np.zeros((8, 4), np.bool_), np.zeros((8, 4), np.float32)
    cut = flags.copy()
    cut[2, 3] = True
    episode = {"episode_returns": np.zeros(1), "episode_lengths": np.ones(1, np.int64)}
    episode["final_obs"] = np.zeros((1, 4), np.float32)
    columns: list[dict[str, Any]] = [
        *({name: row + wrong} for name in ("rewards", "log_probs") for wrong in (np.nan, np.inf)),
        *({"actions": np.full((8, 4), wrong)} for wrong in (-1, 2, 2**62)),
        *({"masks": np.ones(shape, np.bool_)} for shape in ((8, 4), (8, 4, 3), (8, 4, 2, 1))),
        {"masks": np.zeros((8, 4, 2), np.bool_)},
        {"truncated": cut, **episode, "final_obs": None},
        {"truncated": cut, **episode, "final_obs": episode["final_obs"] + np.inf},
        {"truncated": cut, **episode, "episode_returns": np.full(1, np.nan)},
        {"terminated": cut},
        {"successes": np.ones(1)},
        {"valid": flags.astype(np.int8)},
        {"last_obs": np.full((4, 4), np.nan, np.float32)},
        {"extra.noise": row},
        {"state": row},
    ]
    yield from (unroll_bytes(**one) for one in columns)


@pytest.mark.long
def test_ten_thousand_broken_messages_are_refused_and_cost_nothing() -> None:
    """Named errors, no crash, memory flat, and an honest node is served in between."""
    draw = random.Random(7)
    good = unroll_bytes(0)
    forged = list(forged_unrolls())
    messages = [good, pack("beat"), pack("failed", meta={"kind": "x"}), pack("told"), pack("join")]

    def broken() -> bytes:
        data = bytearray(draw.choice(messages))
        kind = draw.randrange(5)
        if kind == 4:
            return draw.choice(forged)
        if kind == 0:
            for _ in range(draw.randrange(1, 4)):
                data[draw.randrange(len(data))] ^= draw.randrange(1, 256)
        elif kind == 1:
            del data[draw.randrange(len(data)) :]
        elif kind == 2:
            data = bytearray(draw.randbytes(draw.randrange(300)))
        else:  # right in itself, and nothing that may be said
            return pack(
                draw.choice(["unroll", "ask", "told"]), meta={"actor": draw.randrange(-2, 3)}
            )
        return bytes(data)

    with listening(n_actors=1, max_in_flight=1) as fleet, connect(address_of(fleet)) as channel:
        memory = []
        for round_ in range(10):
            for _ in range(1000):
                with Liar(address_of(fleet), channel) as node:
                    if draw.random() < 0.5:
                        node.join()
                    node.say(broken())
                    with pytest.raises((ValueError, ConnectionError)):
                        [node.hear() for _ in range(5)]
            with Liar(address_of(fleet), channel) as honest:
                wait_for(lambda: fleet.stats().alive == 0)
                honest.join()
                honest.say(good)
                assert take(fleet, 1) == [0]
            memory.append(_megabytes())
            assert round_ < 2 or memory[-1] < memory[1] + 32, memory


def _megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
