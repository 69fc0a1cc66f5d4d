"""Servers of environments that are killed while actors play there, and started again."""

from __future__ import annotations

import random
import time
from functools import partial
from typing import Any

import pytest

pytest.importorskip("grpc")

import sharpwave as sw
from sharpwave.distributed import Unroll
from tests.contract.fleets import check_follows
from tests.fleet_envs import Marked
from tests.fleet_ids import id_of
from tests.unit.distributed.envs.servers import Process
from tests.waiting import receive_until, wait_for


def kill_at_random(n_kills: int, draw: random.Random) -> None:
    """Kill servers, whose environments say in which process they are and how far they have come."""
    env, _ = id_of(Marked)
    servers = [Process(env, "--n-envs", "2") for _ in range(2)]
    agent: Any = sw.IMPALA(
        env,
        worker_addresses=[server.address for server in servers],
        actors="threads",
        n_steps=8,
        hidden=(8,),
        seed=1,
        max_in_flight=4,
        max_lag=1000,
    )
    fleet = agent.loop.fleet
    unrolls: list[Unroll] = []

    take_until = partial(receive_until, fleet, unrolls)

    def have_acted(since: int, actors: set[int]) -> bool:
        return actors <= {one.actor for one in unrolls[since:]}

    try:
        fleet.start(agent.learner.weights(), 0)
        for number in range(n_kills):
            take_until(partial(have_acted, len(unrolls), {0, 1}))
            moment = time.monotonic() + draw.uniform(0, 0.05)
            take_until(lambda: time.monotonic() > moment)  # noqa: B023
            victim = draw.randrange(2)
            servers[victim].end()
            take_until(partial(have_acted, len(unrolls) + 4, {1 - victim}))  # which goes on
            servers[victim] = Process(env, "--n-envs", "2", port=servers[victim].port)
            assert servers[victim].address
            take_until(lambda: fleet.stats().restarts > number)  # noqa: B023
        take_until(partial(have_acted, len(unrolls) + 4, {0, 1}))
        wait_for(lambda: fleet.stats().alive == 2)
        stats = fleet.stats()
        assert stats.failures == stats.restarts >= n_kills
        assert stats.lost >= n_kills
        check_follows(unrolls)
    finally:
        agent.close()
        for server in servers:
            server.end()


@pytest.mark.long
def test_an_actor_goes_on_where_its_server_is_killed_and_no_step_is_taken_twice() -> None:
    kill_at_random(2, random.Random(5))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_servers_are_killed_at_fifty_moments() -> None:
    kill_at_random(50, random.Random(6))
