"""Shards that are killed, stopped or full: nothing is torn, and nothing lost that was there."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave import MmapReplayBuffer
from sharpwave.distributed.replay import ShardedReplay
from sharpwave.errors import SharpwaveIOError
from tests.processes import stop
from tests.unit.distributed.replay.shards import (
    FIELDS,
    Served,
    no_thread_left,
    numbers_of,
    served,
    steps,
)
from tests.waiting import LONG, wait_for, without_hanging

STREAMS = 4


class Traffic:
    """Threads that push and draw until told to stop, each with a replay of its own."""

    def __init__(self, addresses: list[str], timeout: float = LONG / 4) -> None:
        self.pushed: list[set[int]] = [set(), set()]
        """By shard, the numbers of the steps that it has confirmed."""
        self.drawn = 0
        self.failures: list[BaseException] = []
        options: dict[str, Any] = {"fields": FIELDS, "n_envs": STREAMS, "timeout": timeout}
        self.writer = ShardedReplay(addresses, **options)
        self.reader = ShardedReplay(addresses, **options, prefetch=2)
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._push), threading.Thread(target=self._draw)]

    def _push(self) -> None:
        number = 0
        with self._failing():
            while not self._over.is_set():
                alive = [member.is_alive for member in self.writer._group.members]
                lost = [member.lost_rows for member in self.writer._group.members]
                self.writer.push_batch(**steps(range(number, number + STREAMS)))
                for shard, member in enumerate(self.writer._group.members):
                    if alive[shard] and member.lost_rows == lost[shard]:
                        self.pushed[shard] |= set(range(number + shard, number + STREAMS, 2))
                number += STREAMS

    def _draw(self) -> None:
        with self._failing():
            while not self._over.is_set():
                if len(self.reader) >= 32:
                    self.drawn += len(numbers_of(self.reader.sample(32)))

    def has_drawn(self, steps: int) -> bool:
        return self.drawn >= steps

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.failures.append(error)

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(LONG)
            assert not thread.is_alive()
        self.reader.close()
        self.writer.close()
        assert not self.failures, self.failures


def traffic_to(shards: list[Served]) -> Traffic:
    return Traffic([shard.address for shard in shards])


def rows_in(folder: Path) -> set[int]:
    """The numbers of the steps in a folder, all of which are whole."""
    with MmapReplayBuffer.open(folder, read_only=True, verify=True) as buffer:
        return set(numbers_of(buffer.gather(buffer.indices())).tolist())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_fifty_kills_leave_no_torn_step_and_take_no_committed_one(tmp_path: Path) -> None:
    kill_and_go_on(tmp_path, 50)


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_killed_shard_is_back_with_every_step_that_it_confirmed(tmp_path: Path) -> None:
    kill_and_go_on(tmp_path, 3)


def kill_and_go_on(tmp_path: Path, kills: int) -> None:
    """Kill a shard again and again while others push and draw, and look at what is left."""
    moments = random.Random(7)
    folders = [tmp_path / "0", tmp_path / "1"]
    commands = [(folder, "--capacity", "1000000") for folder in folders]
    with no_thread_left(), served(*commands) as shards, traffic_to(shards) as traffic:
        for kill in range(kills):
            time.sleep(moments.uniform(0.05, 0.4))
            victim = kill % 2
            shards[victim].kill()
            wait_for(lambda: traffic.reader.stats()["shards_lost"] == kill + 1)  # noqa: B023
            wait_for(lambda: traffic.writer.stats()["shards_lost"] == kill + 1)  # noqa: B023
            wait_for(partial(traffic.has_drawn, traffic.drawn + 1))  # of the other one
            shards[victim] = shards[victim].again()
            for replay in (traffic.reader, traffic.writer):
                wait_for(partial(getattr, replay._group.members[victim], "is_alive"))
        wait_for(lambda: min(map(len, traffic.pushed)) > 100)
        assert traffic.reader.stats()["shards_lost"] == kills
        assert not traffic.failures, traffic.failures
    for shard, folder in enumerate(folders):
        found = rows_in(folder)
        assert traffic.pushed[shard] <= found
        assert all(number % 2 == shard for number in found)  # of its own streams alone


@pytest.mark.long
def test_a_stopped_shard_is_gone_at_its_deadline_and_may_return(tmp_path: Path) -> None:
    with no_thread_left(), served(("--capacity", "1000"), ("--capacity", "1000")) as shards:
        addresses = [shard.address for shard in shards]
        with ShardedReplay(addresses, fields=FIELDS, n_envs=2, timeout=8.0) as replay:
            replay.push_batch(**steps(range(40)))
            stop(shards[1].process.pid)
            try:
                assert (numbers_of(replay.sample(20)) % 2 == 0).all()
                with without_hanging():  # nobody waits for it any more
                    for _ in range(20):
                        replay.sample(20)
                replay.push_batch(**steps(range(40, 60)))
                assert replay.stats()["lost_rows"] == 10
            finally:
                os.kill(shards[1].process.pid, signal.SIGCONT)
            wait_for(lambda: replay.stats()["shards_alive"] == 2)
            assert len(replay) == 50
            assert (numbers_of(replay.sample(40)) % 2 == 1).any()


def push_on(replay: ShardedReplay) -> None:
    """Push more than a small disk holds."""
    for first in range(100, 100_000, 1000):
        replay.push_batch(**steps(range(first, first + 1000)))


@pytest.mark.long
def test_a_shard_without_room_says_so_and_draws_go_on(
    mount: Callable[..., Path], tmp_path: Path
) -> None:
    disk = mount("disk", "-t", "tmpfs", "-o", "size=12m", "tmpfs")
    where = [(disk / "0", "--capacity", "60000"), (tmp_path / "1", "--capacity", "60000")]
    with served(*where) as shards:
        addresses = [shard.address for shard in shards]
        with ShardedReplay(addresses, fields=FIELDS, n_envs=2, timeout=LONG / 4) as replay:
            replay.push_batch(**steps(range(100)))
            filler = disk / "filler"
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                while file.write(bytes(4096)):
                    pass
            with pytest.raises(SharpwaveIOError, match=r"No space left|no room") as caught:
                push_on(replay)
            assert addresses[0] in str(caught.value)
            held = len(replay)
            numbers_of(replay.sample(100))
            filler.unlink()
            replay.push_batch(**steps(range(100)))
            assert len(replay) == held + 100
            assert replay.stats()["shards_lost"] == 0


@pytest.mark.long
def test_ids_of_a_restarted_shard_are_ignored_unless_it_kept_its_rows(tmp_path: Path) -> None:
    where = [(tmp_path / "0", "--capacity", "1000", "--prioritized"), ("--prioritized",)]
    with no_thread_left(), served(*where) as shards:
        addresses = [shard.address for shard in shards]
        with ShardedReplay(addresses, fields=FIELDS, n_envs=2, timeout=LONG / 4) as replay:
            replay.push_batch(**steps(range(60)))
            drawn = replay.sample(60)
            of_second = int((numbers_of(drawn) % 2).sum())
            for number in range(2):
                shards[number].kill()
                wait_for(lambda: replay.stats()["shards_lost"] == number + 1)  # noqa: B023
                shards[number] = shards[number].again()
                wait_for(lambda: replay.stats()["shards_alive"] == 2)
            replay.push_batch(**steps(range(60, 120)))
            assert replay.update_priorities(drawn["indices"], np.full(60, 7.0)) == of_second
            states = [member.shard.state() for member in replay._group.members]
            assert [state.max_priority for state in states] == [7.0, 1.0]


@pytest.mark.long
def test_a_served_shard_does_without_torch(tmp_path: Path) -> None:
    shard = Served(tmp_path / "0", "--capacity", "1000")
    try:
        maps = Path(f"/proc/{shard.process.pid}/maps").read_text()
        assert "libtorch" not in maps
    finally:
        shard.kill()
