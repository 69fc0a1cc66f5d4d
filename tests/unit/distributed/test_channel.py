"""Connections between a learner and the process of an actor."""

from __future__ import annotations

import os

import pytest

from sharpwave.distributed.channel import Channel, read_pickle, write_pickle


def test_messages_are_whole_and_may_have_a_file() -> None:
    here, there = Channel.pair()
    assert here.receive(waits=False) is None
    file = write_pickle({"what": "it said"})
    there.send(b"D", 1, 2, 3)
    there.send(b"E", file=file)
    os.close(file)
    assert here.receive() == (b"D", (1, 2, 3, 0, 0), None)
    message = here.receive()
    assert message is not None
    assert message.descriptor is not None
    assert read_pickle(message.descriptor) == {"what": "it said"}
    os.close(message.descriptor)
    there.close()
    here.send(b"g")  # nobody listens any more
    assert here.receive() is None
    here.close()


@pytest.mark.parametrize("waits", [True, False])
def test_last_words_are_heard_of_whoever_did_not_listen(waits: bool) -> None:
    """A process ended with a message unread, and why it ended was lost with it."""
    here, there = Channel.pair()
    here.send(b"g", 7)
    there.send(b"D", 1)
    there.send(b"E", 2)
    there.close()
    found = [here.receive(waits=waits) for _ in range(3)]
    assert [one and (one.kind, one.numbers[0]) for one in found] == [(b"D", 1), (b"E", 2), None]
    here.close()
