"""Streams whose answers a thread takes: their order, their ends, and who is interrupted."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("grpc")

from sharpwave.distributed.answers import Answers
from sharpwave.distributed.wire import Method, connect, grpc, serve, service
from tests.waiting import LONG, interrupted


class Call:
    """A stream that echoes what is said to it."""

    def __init__(self, channel: Any) -> None:
        self.said: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.answers = Answers(channel.stream_stream("/test.Echo/Echo")(iter(self.said.get, None)))


def echo(messages: Iterator[bytes], _: Any) -> Iterator[bytes]:
    for message in messages:
        if message == b"fail":
            raise ValueError("of the test")
        yield message


@contextmanager
def calling() -> Iterator[Call]:
    before = set(threading.enumerate())
    methods = [Method("Echo", echo, stream_in=True, stream_out=True)]
    with serve([service("test.Echo", methods)]) as server, connect(server.address) as channel:
        call = Call(channel)
        yield call
        call.said.put(None)
        call.answers.finish(LONG)
    for thread in set(threading.enumerate()) - before:
        thread.join(LONG)
        assert not thread.is_alive(), thread


def test_answers_come_in_turn_until_the_end() -> None:
    with calling() as call:
        for number in range(20):
            call.said.put(b"%d" % number)
        assert [call.answers.next() for _ in range(20)] == [b"%d" % i for i in range(20)]
        call.said.put(None)
        assert call.answers.next() is None
        assert call.answers.next() is None


def test_what_ends_a_call_is_raised_whenever_it_is_asked() -> None:
    with calling() as call:
        call.said.put(b"first")
        call.said.put(b"fail")
        assert call.answers.next() == b"first"
        for _ in range(2):
            with pytest.raises(grpc().RpcError, match="of the test"):
                call.answers.next()


@pytest.mark.parametrize("how", ["cancel", "finish"])
def test_a_call_that_does_not_end_is_ended(how: str) -> None:
    with calling() as call:
        call.said.put(b"first")
        assert call.answers.next() == b"first"
        call.answers.cancel() if how == "cancel" else call.answers.finish(0.0)
        with pytest.raises(grpc().RpcError, match="CANCELLED"):
            call.answers.next()


def test_whoever_was_interrupted_may_ask_again() -> None:
    with calling() as call:
        with interrupted():
            call.answers.next()
        call.said.put(b"later")
        assert call.answers.next() == b"later"
