"""Links to actors and shards that go down, grow narrow or tear messages: nothing comes twice."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.waiting import LONG, receive_until, wait_for

pytest.importorskip("grpc")

import sharpwave as sw
from sharpwave.distributed import Access, EnvRecipe, Unroll
from sharpwave.distributed.grpc_fleet import GrpcFleet
from sharpwave.distributed.security import TOKEN_VARIABLE
from tests.contract.fleets import OPTIONS, check_follows
from tests.durability.test_shards import Traffic, rows_in
from tests.fleet_envs import Marked
from tests.fleet_ids import id_of
from tests.unit.distributed.envs.servers import Proxy
from tests.unit.distributed.link import Link, link
from tests.unit.distributed.remote import RECIPE
from tests.unit.distributed.replay.shards import FIELDS, Served, no_thread_left, numbers_of, steps

__all__ = ["link"]

TOKEN = "a-token-of-the-tests"
TIMES = pytest.mark.parametrize(
    "seconds",
    [1.0, 5.0, pytest.param(60.0, marks=pytest.mark.slow)],
)
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore:the token travels:UserWarning"),
]
ENV, _ = id_of(Marked)


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)


def here(*command: str) -> list[str]:
    return list(command)


class Watched:
    """A fleet whose actors say where they are, and all that came of it."""

    def __init__(self, address: str, deadline: float) -> None:
        recipe = EnvRecipe(env=ENV, n_envs=OPTIONS["n_envs"], mode="sync")
        agent: Any = sw.IMPALA(ENV, actors="threads", **{**OPTIONS, "n_actors": 1})
        weights = agent.learner.weights().copy()
        agent.close()
        spaces = Marked.observation_space, Marked.action_space
        self.fleet = GrpcFleet(
            replace(RECIPE, env=recipe),
            *spaces,
            n_actors=2,
            max_in_flight=4,
            address=address,
            access=Access(TOKEN),
            deadline=deadline,
        )
        self.unrolls: list[Unroll] = []
        self.fleet.start(weights, 0)
        self._nodes: list[subprocess.Popen[bytes]] = []

    def add_node(self, address: str, inside: Callable[..., list[str]] = here) -> None:
        command = [sys.executable, "-m", "sharpwave", "actor", "--learner", address, "--env", ENV]
        self._nodes.append(subprocess.Popen(inside(*command), stdout=subprocess.DEVNULL))

    def take_until(self, condition: Callable[[], bool], seconds: float = LONG) -> None:
        receive_until(self.fleet, self.unrolls, condition, seconds)

    def take_of_all(self) -> None:
        """Wait until both actors have acted."""
        seen = len(self.unrolls)
        self.take_until(lambda: {one.actor for one in self.unrolls[seen:]} == {0, 1})

    def close(self) -> None:
        self.fleet.stop()
        try:
            assert [node.wait(LONG) for node in self._nodes] == [0] * len(self._nodes)
        finally:
            for node in self._nodes:
                node.kill()
                node.wait()


@contextlib.contextmanager
def watched(address: str = "127.0.0.1:0", deadline: float = 3.0) -> Iterator[Watched]:
    one = Watched(address, deadline)
    try:
        yield one
    finally:
        one.close()
    check_follows(one.unrolls)


@TIMES
def test_actors_behind_a_link_that_was_down_are_back(link: Link, seconds: float) -> None:
    is_short = seconds == 1.0
    with watched(f"{link.here}:0", deadline=LONG if is_short else 3.0) as one:
        assert one.fleet.address is not None
        one.add_node(one.fleet.address, link.inside)
        one.add_node(one.fleet.address)
        one.take_of_all()
        waiting = link.down_for(seconds)
        seen, until = len(one.unrolls), time.monotonic() + seconds
        one.take_until(lambda: time.monotonic() > until)
        one.take_until(lambda: len(one.unrolls) > seen + 10)  # of the other one, which goes on
        waiting.join()
        one.take_of_all()
        stats = one.fleet.stats()
        assert stats.alive == 2
        # A short time is waited for; after its deadline the node is another one.
        assert (stats.restarts == 0) == is_short
        assert stats.lost <= stats.restarts


def test_actors_behind_a_narrow_link_are_slow_and_there(link: Link) -> None:
    with watched(f"{link.here}:0", deadline=LONG) as one:
        assert one.fleet.address is not None
        for _ in range(2):
            one.add_node(one.fleet.address, link.inside)
        one.take_of_all()
        link.narrow("256kbit")
        for _ in range(3):
            one.take_of_all()
        link.widen()
        one.take_of_all()
        stats = one.fleet.stats()
        assert (stats.alive, stats.restarts, stats.lost) == (2, 0, 0)


def test_messages_that_are_torn_or_lost_on_their_way_cost_an_unroll_each() -> None:
    with watched(deadline=LONG) as one:  # whoever is cut off is missed at once
        assert one.fleet.address is not None
        proxy = Proxy(one.fleet.address)
        try:
            for _ in range(2):
                one.add_node(proxy.address)
            one.take_of_all()
            for number in range(1, 7):
                if number % 2:
                    proxy.to_tear += 1
                else:
                    proxy.to_lose += 1
                one.take_until(lambda: proxy.torn + proxy.lost == number)  # noqa: B023
                one.take_until(lambda: one.fleet.stats().restarts >= number)  # noqa: B023
                one.take_of_all()
            assert one.fleet.stats().lost <= one.fleet.stats().restarts
            proxy.delay = 0.05
            one.take_of_all()
            one.take_of_all()
        finally:
            proxy.delay = 0.0
            one.fleet.stop()
            proxy.close()


@TIMES
def test_a_shard_behind_a_link_that_was_down_is_back_with_its_steps(
    link: Link, seconds: float, tmp_path: Path
) -> None:
    folders = [tmp_path / "0", tmp_path / "1"]
    options = ("--capacity", "1000000")
    shards = [Served(folders[0], *options)]
    try:
        shards.append(Served(folders[1], *options, "--host", link.there, inside=link.inside))
        with no_thread_left(), Traffic([shard.address for shard in shards], 3.0) as traffic:
            far = [replay._group.members[1] for replay in (traffic.reader, traffic.writer)]
            wait_for(lambda: traffic.drawn > 1000)
            waiting = link.down_for(seconds)
            drawn, until = traffic.drawn, time.monotonic() + seconds
            wait_for(lambda: time.monotonic() > until)
            wait_for(lambda: traffic.drawn > drawn + 100)  # of the other one
            waiting.join()
            for member in far:
                wait_for(partial(getattr, member, "is_alive"))
            pushed = len(traffic.pushed[1])
            wait_for(lambda: len(traffic.pushed[1]) > pushed + 100)
            assert not traffic.failures, traffic.failures
            assert traffic.writer.stats()["lost_rows"] > 0 or seconds == 1.0
    finally:
        for shard in shards:
            shard.kill()
    for number, folder in enumerate(folders):
        found = rows_in(folder)
        assert traffic.pushed[number] <= found
        assert all(one % 2 == number for one in found)


def test_a_shard_whose_answers_are_lost_on_their_way_takes_no_step_twice(tmp_path: Path) -> None:
    folders = [tmp_path / "0", tmp_path / "1"]
    shards: list[Served] = []
    try:
        shards += [Served(folder, "--capacity", "1000000") for folder in folders]
        proxy = Proxy(shards[1].address)
        with no_thread_left(), Traffic([shards[0].address, proxy.address]) as traffic:
            far = [replay._group.members[1] for replay in (traffic.reader, traffic.writer)]
            wait_for(lambda: traffic.drawn > 1000)
            for number in range(1, 9):
                proxy.to_lose += 1
                wait_for(lambda: proxy.lost == number)  # noqa: B023
                wait_for(lambda: sum(member.losses for member in far) >= number)  # noqa: B023
                wait_for(lambda: all(member.is_alive for member in far))
            proxy.delay = 0.02
            drawn, pushed = traffic.drawn, len(traffic.pushed[1])
            wait_for(lambda: traffic.drawn > drawn + 100 and len(traffic.pushed[1]) > pushed)
            proxy.delay = 0.0
            assert not traffic.failures, traffic.failures
        proxy.close()
    finally:
        for shard in shards:
            shard.kill()
    for folder, confirmed in zip(folders, traffic.pushed, strict=True):
        with sw.MmapReplayBuffer.open(folder, read_only=True, verify=True) as buffer:
            found = numbers_of(buffer.gather(buffer.indices())).tolist()
        assert len(found) == len(set(found))
        assert confirmed <= set(found)


def test_a_shard_behind_a_narrow_link_loses_nothing(link: Link, tmp_path: Path) -> None:
    shard = Served(tmp_path / "0", "--capacity", "10000", "--host", link.there, inside=link.inside)
    try:
        with sw.ShardedReplay([shard.address], fields=FIELDS, n_envs=2, timeout=30) as replay:
            replay.push_batch(**steps(range(100)))
            link.narrow("256kbit")
            for first in range(100, 600, 100):
                replay.push_batch(**steps(range(first, first + 100)))
                numbers_of(replay.sample(32))
            link.widen()
            assert len(replay) == 600
            assert replay.stats()["shards_lost"] == replay.stats()["lost_rows"] == 0
    finally:
        shard.kill()
    assert rows_in(tmp_path / "0") == set(np.arange(600).tolist())
