"""Nodes at a learner that is full, busy or slow: they wait, and what they said last arrives."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc")

import sharpwave.distributed.node as nodes
from sharpwave.distributed.codec import pack, unpack
from sharpwave.distributed.grpc_fleet import PROTOCOL, SERVICE
from sharpwave.distributed.wire import Method, connect, serve, service
from tests.unit.distributed.remote import WEIGHTS, Acting, Liar, address_of, listening
from tests.waiting import LONG, interrupted, wait_for, without_hanging


def joined(address: str) -> Liar:
    """A node that has found a place."""
    while True:
        node = Liar(address)
        try:
            node.join()
        except ConnectionError:  # the call before it has not quite ended
            node.close()
        else:
            return node


@pytest.mark.long
def test_a_node_waits_for_a_learner_with_as_many_calls_as_it_takes() -> None:
    with listening(n_actors=1, max_in_flight=1, max_nodes=1) as fleet:
        first = joined(address_of(fleet))
        later = Acting(address_of(fleet), patience=2.0)
        wait_for(lambda: sum("is busy" in line for line in later.said) >= 2)  # beyond its patience
        assert later.error is None
        first.close()
        fleet.publish(WEIGHTS, 1)
        unroll = None
        while unroll is None:
            unroll = fleet.receive(1.0)
        assert unroll.actor == 0
    assert later.wait() is None


class Learner:
    """Takes messages slowly, or not at all."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.takes = True
        self.over = threading.Event()

    def join(self, messages: Iterator[bytes], _: Any) -> Iterator[bytes]:
        next(messages)
        numbers = {name: np.zeros(1, np.int64) for name in ("numbers", "lives")}
        yield pack("welcome", numbers, {"protocol": PROTOCOL})
        if not self.takes:
            self.over.wait(LONG)
        for data in messages:
            time.sleep(0.01)
            self.taken.append(unpack(data).meta.get("number"))


@pytest.mark.parametrize("takes", [True, False])
def test_a_node_that_leaves_says_all_it_has_to_say(
    takes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if takes:  # however slowly
        monkeypatch.setattr(nodes, "FAREWELL", LONG)
    learner = Learner()
    learner.takes = takes
    methods = [Method("Join", learner.join, stream_in=True, stream_out=True)]
    with (
        serve([service(SERVICE, methods)]) as server,
        connect(server.address) as channel,
    ):
        visit = nodes._Visit(channel, server.address, 1)
        visit.join()
        for number in range(50):
            visit.say(pack("failed", meta={"number": number}))
        with without_hanging():
            visit.leave()
        assert [one for one in learner.taken if one is not None] == list(range(50 * takes))
        learner.over.set()


def test_a_node_that_is_interrupted_says_all_it_has_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """It hung up at once, and sometimes never ended."""
    monkeypatch.setattr(nodes, "FAREWELL", LONG)
    learner = Learner()
    methods = [Method("Join", learner.join, stream_in=True, stream_out=True)]
    with (
        serve([service(SERVICE, methods)]) as server,
        connect(server.address) as channel,
    ):
        visit = nodes._Visit(channel, server.address, 1)
        visit.join()
        with interrupted():
            visit.follow({}, WEIGHTS.size)
        for number in range(50):
            visit.say(pack("failed", meta={"number": number}))
        with without_hanging():
            visit.leave()
        assert [one for one in learner.taken if one is not None] == list(range(50))
