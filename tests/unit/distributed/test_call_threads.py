"""Threads of servers: how many there are, what becomes of errors, and how they end."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError

import pytest

from sharpwave.distributed.call_threads import CallThreads
from tests.waiting import LONG, wait_for


def names() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("of the test")]


def test_as_many_calls_are_carried_out_at_a_time_as_there_may_be() -> None:
    together, last = threading.Barrier(4), threading.Event()
    with CallThreads(3, "of the test") as threads:
        three = [threads.submit(together.wait, LONG) for _ in range(3)]
        later = threads.submit(last.set)
        wait_for(lambda: together.n_waiting == 3)
        assert not last.wait(0.05)
        assert len(names()) == 3
        together.wait(LONG)
        assert len({one.result(LONG) for one in three}) == 3
        assert later.result(LONG) is None
        assert last.is_set()
    assert names() == []


def test_threads_are_used_again() -> None:
    with CallThreads(8, "of the test") as threads:
        for number in range(20):
            assert threads.submit(divmod, number, 7).result(LONG) == divmod(number, 7)
            wait_for(lambda: threads._idle._value == 1)
        assert len(names()) == 1


def test_what_a_call_raises_is_raised_where_its_result_is_asked_for() -> None:
    with CallThreads(1, "of the test") as threads:
        with pytest.raises(ZeroDivisionError):
            threads.submit(divmod, 1, 0).result(LONG)
        assert threads.submit(int, "7", base=8).result(LONG) == 7


def test_calls_that_have_not_begun_are_left_out() -> None:
    begun, over = threading.Event(), threading.Event()

    def call() -> bool:
        begun.set()
        return over.wait(LONG)

    threads = CallThreads(1, "of the test")
    first, second = threads.submit(call), threads.submit(call)
    assert begun.wait(LONG)
    threads.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(RuntimeError, match="takes no more calls"):
        threads.submit(call)
    with pytest.raises(CancelledError):
        second.result(LONG)
    over.set()
    assert first.result(LONG)
    wait_for(lambda: names() == [])
