"""Exceptions and signals in the middle of episodes."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharpwave import EpisodeBuffer
from sharpwave.episodes import ABORTED, COMPLETE
from tests.durability.episode_model import FIELDS, META, look, steps

STEPS = [steps(number) for number in range(20)]
BATCHES = [steps([number, 100 + number]) for number in range(20)]


def make(folder: Path) -> EpisodeBuffer:
    return EpisodeBuffer(folder / "episodes", 10_000, 200, FIELDS, META)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, SystemExit])
def test_whatever_ends_a_block_is_raised_and_aborts_its_episodes(
    error: type[BaseException], memory_path: Path
) -> None:
    buffer = make(memory_path)

    def fail_alone() -> None:
        with buffer.one_episode(task=1) as final:
            buffer.store(**steps(1))
            final["score"] = 5.0
            raise error("mine")

    def fail_together() -> None:
        with buffer.batched_episode(2, task=[2, 3]):
            buffer.store_batch(**steps([2, 3]))
            raise error("mine")

    for fail in (fail_alone, fail_together):
        with pytest.raises(error, match="mine"):
            fail()
    buffer.store_episode(**steps([4]), task=4)
    assert [(e[1], e[2], e[4]) for e in look(buffer)] == [
        (ABORTED, 1, [1]),
        (ABORTED, 2, [2]),
        (ABORTED, 3, [3]),
        (COMPLETE, 4, [4]),
    ]
    assert len(buffer) == 1


def test_a_refused_block_does_not_end_the_open_episode(memory_path: Path) -> None:
    buffer = make(memory_path)
    with buffer.one_episode(task=1):
        buffer.store(**steps(1))
        for block in (buffer.one_episode(), buffer.batched_episode(2)):
            with pytest.raises(RuntimeError, match="open already"):
                block.__enter__()
        buffer.store(**steps(2))
    assert [(e[1], e[4]) for e in look(buffer)] == [(COMPLETE, [1, 2])]


class Interrupts:
    """Interrupts like Ctrl-C at a random moment, once, as long as they are allowed."""

    def __init__(self) -> None:
        self.allowed = False

    def interrupt(self, *_: object) -> None:
        if self.allowed:
            raise KeyboardInterrupt

    def start(self) -> None:
        self.allowed = True
        signal.setitimer(signal.ITIMER_REAL, random.random() * 3e-4 + 1e-6)


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    interrupts = Interrupts()
    before = signal.signal(signal.SIGALRM, interrupts.interrupt)
    yield interrupts
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("rounds", [150, pytest.param(5_000, marks=pytest.mark.slow)])
def test_interrupts_at_any_moment_leave_whole_steps_and_no_open_episode(
    rounds: int, interrupts: Interrupts, memory_path: Path
) -> None:
    buffer = make(memory_path)
    count = 0
    for number in range(rounds):
        batched = number % 3 == 0
        known = len(buffer.episodes(aborted=True))
        stored = 0
        try:
            interrupts.start()
            if batched:
                with buffer.batched_episode(2, task=[number, number]):
                    for fields in BATCHES:
                        buffer.store_batch(**fields)
                        stored += 1
            else:
                with buffer.one_episode(task=number):
                    for fields in STEPS:
                        buffer.store(**fields)
                        stored += 1
            interrupts.allowed = False
        except KeyboardInterrupt:
            count += 1
        interrupts.allowed = False
        assert not buffer._engine.has_open
        table = buffer.episodes(aborted=True)
        for i in range(known, len(table)):
            assert table.meta["task"][i] == number
            length = int(table.lengths[i])
            assert length in (stored, stored + 1)
            assert length == len(STEPS) or table.flags[i] == ABORTED
            rows = buffer.gather(table.starts[i] + range(length))["number"].tolist()
            assert rows == [n + 100 * (i - known) for n in range(length)]
        assert len(table) - known in ((0, 2) if batched else (0, 1))
        assert stored == 0 or len(table) > known
    assert count > rounds / 10
    buffer.close()
    with EpisodeBuffer.from_folder(buffer.folder, verify=True) as again:
        assert (again.episodes(aborted=True).ids == table.ids).all()
