"""Forecasts of actors and a learner."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.cli.main import main
from sharpwave.cli.plan import _Share
from sharpwave.distributed.forecast import Forecast
from sharpwave.distributed.stand_ins import StandIns
from tests.contract.fleets import received
from tests.waiting import wait_for

LARGE = Forecast(
    n_actors=1000,
    n_envs=16,
    n_steps=80,
    batch_unrolls=2,
    n_nodes=50,
    unroll_seconds=0.1,
    update_seconds=0.01,
    taken_seconds=0.005,
    unroll_bytes=46_000,
    weights_bytes=20_000,
)


def test_too_many_actors_are_named_with_what_to_use() -> None:
    said = LARGE.verdict()
    assert said.startswith(
        "1,000 x 16 x 80 in flight over a batch of 2,560 is a lag of 500: V-trace will not hold; "
        "use batch_unrolls=250 or more, or max_in_flight=8"
    )
    enough = replace(LARGE, batch_unrolls=250)
    assert enough.lag == 4
    assert enough.verdict().endswith("is a lag of 4: V-trace will hold")


@pytest.mark.parametrize(
    ("change", "limit"),
    [
        ({}, "the learner"),
        ({"taken_seconds": 0.02}, "the wire"),
        ({"unroll_seconds": 100.0}, "the actors"),
    ],
)
def test_the_slowest_part_is_the_limit(change: dict[str, Any], limit: str) -> None:
    forecast = replace(LARGE, **change)
    assert forecast.limit == limit
    assert forecast.steps_per_second == min(forecast.actor_rate, forecast.learner_rate)


def test_traffic_is_that_of_what_is_learned_from() -> None:
    """2 unrolls of 46 kB in 10 ms, and weights of 20 kB to 50 nodes after each of them."""
    assert LARGE.received_per_second == pytest.approx(2 * 46_000 / 0.01)
    assert LARGE.sent_per_second == pytest.approx(50 * 20_000 / 0.01)
    assert LARGE.actors_kept_busy == 20  # each makes a step in 78 us, the learner takes one in 3.9


@pytest.mark.long
@pytest.mark.parametrize("batch", [1, 12])
def test_the_command_measures_here(batch: int, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--actors", "24", "--envs", "4", "--unroll", "8", "--batch-unrolls", str(batch)]
    assert main(["plan", "impala", "CartPole-v1", *options]) == 0
    said = capsys.readouterr().out
    rates = [float(one.replace(",", "")) for one in re.findall(r"([\d,]+) steps/s", said)]
    assert len(rates) == 3
    assert rates[2] == pytest.approx(min(24 * rates[0], rates[1]), rel=0.01)
    assert f"over a batch of {32 * batch} is a lag of {24 / batch:g}" in said


@pytest.mark.long
def test_actors_in_wrapped_environments_send_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """No code travels, so what the learner takes is what an update takes."""
    wrapper = "gymnasium.wrappers:RecordEpisodeStatistics"
    options = ["--envs", "2", "--unroll", "8", "--wrapper", wrapper]
    assert main(["plan", "impala", "CartPole-v1", *options]) == 0
    said = capsys.readouterr().out
    assert "traffic: none" in said
    assert "gRPC" not in said


@pytest.mark.parametrize(
    ("actors", "node_actors", "unroll_bytes", "share"),
    [
        (1000, 20, 48_000, (50, 20, 250)),  # all of it
        (2048, 1, 48_000, (512, 1, 62)),  # a quarter of the nodes and of the batch
        (1000, 20, 2**24, (1, 16, 4)),  # what 256 MiB hold
        (4, 8, 48_000, (1, 4, 250)),
        (2, 1, 2**30, (1, 1, 1)),
    ],
)
def test_what_is_tried_has_the_proportions_of_the_whole(
    actors: int, node_actors: int, unroll_bytes: int, share: tuple[int, int, int]
) -> None:
    parsed = SimpleNamespace(actors=actors, node_actors=node_actors, batch_unrolls=250)
    assert _Share.of(parsed, -(-actors // node_actors), unroll_bytes) == share


@pytest.mark.long
def test_stand_ins_send_the_unroll_whenever_one_is_asked_for() -> None:
    with contextlib.closing(sw.IMPALA("CartPole-v1", n_actors=1, n_envs=2, n_steps=4)) as agent:
        agent.loop.fleet.start(agent.learner.weights(), 0)
        unroll = received(agent.loop.fleet)
    options: dict[str, Any] = {"n_envs": 2, "n_steps": 4, "actors": "grpc", "max_lag": 99}
    agent = sw.IMPALA("CartPole-v1", n_actors=6, **options)
    with contextlib.closing(agent):
        fleet = agent.loop.fleet
        fleet.start(agent.learner.weights(), 7)
        with StandIns(fleet.address, unroll, n_nodes=3, node_actors=2) as stand_ins:
            wait_for(lambda: fleet.stats().alive == 6)
            found = [received(fleet) for _ in range(60)]
            while len({one.actor for one in found}) < 6:  # one process may be slower than another
                found.append(received(fleet))
            stand_ins.check()
            stats = fleet.stats()
        with pytest.raises(RuntimeError, match="ended"):
            stand_ins.check()
    assert {one.version for one in found} == {7}
    assert all(np.array_equal(one.rollout.obs, unroll.rollout.obs) for one in found)
    assert (stats.alive, stats.failures, stats.lost) == (6, 0, 0)


def test_an_algorithm_without_actors_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "ppo", "CartPole-v1"]) == 2
    assert "ppo has no actors" in capsys.readouterr().err
