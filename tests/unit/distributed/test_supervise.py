"""Counts of failures and restarts, and when a run ends."""

from __future__ import annotations

import threading

import pytest

from sharpwave.distributed import supervise
from sharpwave.distributed.supervise import MOST_FAILURES, Lives
from sharpwave.errors import NonFiniteError


def test_counts_are_of_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A learner was told of a failure whose restart was not counted yet."""
    lives, counted = Lives(1), threading.Event()
    found: list[dict[str, int]] = []

    def count() -> None:
        found.append(lives.counts())
        counted.set()

    counting = threading.Thread(target=count)

    class InTheMidst(type):
        def __instancecheck__(cls, _: object) -> bool:
            counting.start()
            counted.wait(0.2)  # it comes afterwards, or sees a half of it
            return False

    monkeypatch.setattr(supervise, "NonFiniteError", InTheMidst("Error", (), {}))
    assert lives.failed(0, None)
    counting.join()
    assert found == [{"failures": 1, "restarts": 1, "lost": 1}]


def test_failures_in_a_row_end_a_run_and_others_do_not() -> None:
    lives = Lives(2)
    for _ in range(MOST_FAILURES):
        assert lives.failed(1, ValueError("x"))
        lives.succeeded(1)
    assert [lives.failed(0, None) for _ in range(MOST_FAILURES)] == [True, True, False]
    assert not lives.failed(1, NonFiniteError("it would come again"))
    assert lives.numbers == [2, 3]
    assert lives.counts() == {"failures": 7, "restarts": 5, "lost": 7}


def test_lives_that_follow_others_go_on_counting() -> None:
    before = Lives(1)
    before.failed(0, None, lost=0)
    after = Lives(1, before=before)
    assert (after.numbers, after.counts()) == ([0], before.counts())
    after.failed(0, None)
    assert after.counts() == {"failures": 2, "restarts": 2, "lost": 1}
