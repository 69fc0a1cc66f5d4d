"""Unrolls that a loop takes from its fleet: each is learned from, or counted as dropped."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("grpc")

from sharpwave.distributed import FleetCollector
from sharpwave.distributed.fleet import FleetStats, Unroll
from sharpwave.envs import ActionMap
from tests.unit.distributed.remote import N_ENVS, N_STEPS, SPACES, WEIGHTS, unroll


class Given:
    """A fleet that has some unrolls, and then an error or nothing more."""

    def __init__(self, unrolls: list[Unroll], error: Exception | None = None) -> None:
        self.unrolls, self.error = unrolls, error

    def start(self, *_: Any) -> None:
        pass

    publish = start

    def receive(self, _: float) -> Unroll | None:
        if self.unrolls:
            return self.unrolls.pop(0)
        if self.error is not None:
            raise self.error
        return None

    def stats(self) -> FleetStats:
        return FleetStats(2, 2, 0, 0, len(self.unrolls), 0)


def collector_of(fleet: Given, *, in_step: bool = False) -> FleetCollector:
    given: Any = fleet
    options: dict[str, Any] = {"n_envs": 8, "n_unrolls": 2, "max_lag": 1, "in_step": in_step}
    return FleetCollector(given, ActionMap(SPACES[1]), **options)


@pytest.mark.parametrize("in_step", [False, True])
@pytest.mark.parametrize("how", ["stops", "raises"])
def test_unrolls_that_a_callback_gives_up_are_dropped(in_step: bool, how: str) -> None:
    """They were in no count."""
    fleet = Given([unroll(number) for number in (0, 1, 0, 1)])
    collector = collector_of(fleet, in_step=in_step)
    told = 0

    def on_step(_reward: float, _step: Any) -> bool:
        nonlocal told
        told += 1
        if told == 10 and how == "raises":  # in the midst of the second
            raise KeyError("x")
        return told < 10

    if how == "raises":
        with pytest.raises(KeyError):
            collector.collect(WEIGHTS, 0, on_step)
    else:
        assert collector.collect(WEIGHTS, 0, on_step) is None
    assert collector.dropped == 2
    assert [one.actor for one in collector.collect(WEIGHTS, 0) or []] == [0, 1]
    assert collector.dropped == 2


def test_unrolls_that_came_before_an_error_of_the_fleet_are_dropped() -> None:
    collector = collector_of(Given([unroll(0)], ConnectionError("nobody is there")))
    with pytest.raises(ConnectionError):
        collector.collect(WEIGHTS, 0)
    assert collector.dropped == 1


def test_unrolls_that_are_too_old_are_dropped_once() -> None:
    fleet = Given([unroll(0, 0), unroll(1, 5), unroll(0, 5), unroll(1, 5)])
    collector = collector_of(fleet)
    found = collector.collect(WEIGHTS, 5)
    assert [(one.actor, one.version) for one in found or []] == [(0, 5), (1, 5)]
    assert collector.dropped == 1
    assert collector.collect(WEIGHTS, 5, stops=lambda: True) is None  # one of two, and no more
    assert collector.dropped == 2


def test_what_waits_for_others_in_step_is_not_dropped() -> None:
    fleet = Given([unroll(1)])
    collector = collector_of(fleet, in_step=True)
    assert collector.collect(WEIGHTS, 0, stops=lambda: True) is None
    assert collector.dropped == 0
    fleet.unrolls = [unroll(0)]
    found = collector.collect(WEIGHTS, 0)
    assert [one.actor for one in found or []] == [0, 1]
    assert collector.dropped == 0
    assert collector.timesteps == 2 * N_STEPS * N_ENVS
