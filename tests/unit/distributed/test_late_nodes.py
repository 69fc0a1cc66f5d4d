"""Nodes that give signs of life and nothing else: they are given up, and nobody waits for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("grpc")

from sharpwave.distributed import grpc_fleet
from sharpwave.distributed.codec import pack
from tests.contract.fleets import received
from tests.unit.distributed.remote import (
    RECIPE,
    WEIGHTS,
    Liar,
    address_of,
    listening,
    unroll_bytes,
)
from tests.waiting import LONG, wait_for, without_hanging

DEADLINE = 8.0
"""Seconds of silence after which a node is given up; those of these tests are never silent."""
HURRIED = replace(RECIPE, step_timeout=0.1)


@pytest.fixture(autouse=True)
def no_time_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_fleet, "START", 0.0)


@contextmanager
def beating(fleet: Any) -> Iterator[Liar]:
    """A node of one actor that joins, and says that it lives."""
    over = threading.Event()
    with Liar(address_of(fleet)) as node:
        node.join()

        def beat() -> None:
            while not over.wait(0.3):
                node.say(pack("beat"))

        thread = threading.Thread(target=beat)
        thread.start()
        try:
            yield node
        finally:
            over.set()
            thread.join()


@pytest.mark.long
def test_pause_does_not_wait_for_an_unroll_that_never_comes() -> None:
    options: dict[str, Any] = {"n_actors": 1, "max_in_flight": 1, "deadline": DEADLINE}
    with listening(HURRIED, **options) as fleet, beating(fleet) as node:
        with without_hanging():
            fleet.pause()
        stats = fleet.stats()
        assert (stats.alive, stats.failures, stats.lost, stats.busy) == (0, 1, 1, 0)
        with pytest.raises(TimeoutError, match="actor 0 did not answer in time"):
            [node.hear() for _ in range(5)]
        fleet.start(WEIGHTS, 0)
        with Liar(address_of(fleet)) as honest:
            assert honest.join().columns["numbers"].tolist() == [0]
            honest.say(unroll_bytes())
            assert received(fleet).actor == 0


@pytest.mark.long
def test_an_unroll_that_never_comes_is_asked_of_the_next_node() -> None:
    """A run in step waited for it for ever."""
    options: dict[str, Any] = {"n_actors": 1, "max_in_flight": 1, "in_step": True}
    with listening(HURRIED, deadline=DEADLINE, **options) as fleet, beating(fleet):
        fleet.publish(WEIGHTS, 0)
        with without_hanging():
            while fleet.stats().alive == 1:
                assert fleet.receive(0.1) is None
        with Liar(address_of(fleet)) as honest:
            honest.join()
            honest.say(unroll_bytes())
            assert received(fleet).actor == 0


@pytest.mark.long
def test_a_state_that_is_never_told_is_not_waited_for() -> None:
    options: dict[str, Any] = {"n_actors": 1, "max_in_flight": 1, "deadline": DEADLINE}
    with listening(HURRIED, **options) as fleet, beating(fleet) as node:
        node.say(unroll_bytes())
        wait_for(lambda: fleet.stats().waiting == 1)
        with without_hanging():
            state = fleet.state_dict()
        assert state["actors"] == [None]
        assert len(state["ready"]) == 1
        assert (fleet.stats().alive, fleet.stats().failures) == (0, 1)


def test_nodes_that_answer_have_their_time_anew_for_every_unroll() -> None:
    with listening(n_actors=1, max_in_flight=1, deadline=LONG) as fleet, beating(fleet) as node:
        (slot,) = fleet._slots
        for serial in range(3):
            time.sleep(0.3)
            assert slot.is_late(0.2, LONG)
            node.say(unroll_bytes(serial=serial))
            received(fleet)
            assert not slot.is_late(LONG, LONG)
