"""Forecasts of actors and a learner."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from sharpwave.cli.main import main
from sharpwave.distributed.forecast import Forecast

LARGE = Forecast(
    n_actors=1000,
    n_envs=16,
    n_steps=80,
    batch_unrolls=2,
    n_nodes=50,
    unroll_seconds=0.1,
    update_seconds=0.01,
    message_seconds=0.0005,
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
        ({"message_seconds": 0.02}, "the wire"),
        ({"unroll_seconds": 100.0}, "the actors"),
    ],
)
def test_the_slowest_part_is_the_limit(change: dict[str, Any], limit: str) -> None:
    forecast = replace(LARGE, **change)
    assert forecast.limit == limit
    assert forecast.steps_per_second == min(forecast.actor_rate, forecast.learner_rate)


def test_traffic_is_that_of_what_is_learned_from() -> None:
    """2 unrolls of 46 kB in 11 ms, and weights of 20 kB to 50 nodes after each of them."""
    assert LARGE.received_per_second == pytest.approx(2 * 46_000 / 0.011)
    assert LARGE.sent_per_second == pytest.approx(50 * 20_000 / 0.011)
    assert LARGE.actors_kept_busy == 19  # each makes a step in 78 us, the learner takes one in 4.3


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


def test_an_algorithm_without_actors_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "ppo", "CartPole-v1"]) == 2
    assert "ppo has no actors" in capsys.readouterr().err
