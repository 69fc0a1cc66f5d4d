"""Clients that are silent for too long, as seen by somebody who may stand still too."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from sharpwave.distributed import silence
from sharpwave.distributed.silence import SilenceWatch
from tests.waiting import LONG


class Call:
    """A call whose client says nothing until it is ended."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def cancel(self) -> None:
        self.ended.set()

    def requests(self) -> Iterator[bytes]:
        self.ended.wait(LONG)
        yield from ()


@pytest.fixture
def call() -> Iterator[Call]:
    call = Call()
    yield call
    call.ended.set()


class Clock:
    """A clock that jumps where it is told to."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return time.monotonic() + self.ahead

    def wait_for_looks(self) -> None:
        seen, deadline = self.looks, time.monotonic() + LONG
        while self.looks < seen + 4:
            assert time.monotonic() < deadline, "nobody looks"
            time.sleep(0.01)


def begin(watch: SilenceWatch, call: Call) -> threading.Thread:
    """Listen to a client that says nothing."""
    thread = threading.Thread(target=lambda: list(watch.messages(call, call.requests())))
    thread.start()
    return thread


def test_a_client_that_is_silent_is_dropped(call: Call) -> None:
    watch = SilenceWatch(0.2)
    listening = begin(watch, call)
    assert call.ended.wait(LONG)
    listening.join(LONG)
    watch.stop()


def test_a_time_in_which_nobody_listened_is_no_silence(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that stood still dropped all of its clients."""
    clock = Clock()
    monkeypatch.setattr(silence, "time", SimpleNamespace(monotonic=clock.monotonic))
    watch = SilenceWatch(600.0)
    watch._every = 0.01
    listening = begin(watch, call)
    for _ in range(3):
        clock.wait_for_looks()
        clock.ahead += 10_000.0
    clock.wait_for_looks()
    assert not call.ended.is_set()
    call.ended.set()
    listening.join(LONG)
    watch.stop()
