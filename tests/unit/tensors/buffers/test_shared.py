"""Replay shared by processes, some of which are killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from typing import Any

import pytest
import torch

from sharpwave import ResetStrategy, SharedReplayBuffer
from tests.unit.tensors.buffers import workers
from tests.unit.tensors.buffers.workers import is_whole, make, step_of

FORK = multiprocessing.get_context("fork")
SPAWN = multiprocessing.get_context("spawn")

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")


def start(target: Any, *arguments: Any, context: Any = FORK) -> Any:
    process = context.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def rewards(buffer: SharedReplayBuffer) -> list[float]:
    found: list[float] = buffer.state_dict()["fields"]["reward"].flatten().tolist()
    return found


@pytest.mark.long
def test_no_row_is_torn_while_processes_write_and_read() -> None:
    buffer = make(buffer_size=4)
    workers.write(buffer, 1, 4)
    results = FORK.Queue()
    writers = [start(workers.write, buffer, 1000 * i, None) for i in range(2)]
    readers = [start(workers.read, buffer, 400, 8, results) for _ in range(2)]
    found = [results.get(timeout=120) for _ in readers]
    for process in readers:
        process.join(30)
    for process in writers:
        os.kill(process.pid, signal.SIGKILL)
        process.join(30)
    assert found == [(3200, 0), (3200, 0)]


@pytest.mark.slow
def test_no_row_in_a_million_is_torn() -> None:
    buffer = make(buffer_size=64)
    workers.write(buffer, 1, 64)
    results = FORK.Queue()
    writers = [start(workers.write, buffer, 1000 * i, None) for i in range(2)]
    readers = [start(workers.read, buffer, 5000, 100, results) for _ in range(2)]
    found = [results.get(timeout=280) for _ in readers]
    for process in [*readers, *writers]:
        os.kill(process.pid, signal.SIGKILL)
        process.join(30)
    assert found == [(500_000, 0), (500_000, 0)]


def test_a_process_killed_in_the_middle_of_a_write_harms_nobody() -> None:
    for n_steps in (2, 7):
        buffer = make(buffer_size=4)
        workers.write(buffer, 1, n_steps)
        before = set(rewards(buffer))
        dead = start(workers.die_in_the_middle, buffer)
        dead.join(30)
        assert dead.exitcode == -signal.SIGKILL
        assert len(buffer) == min(n_steps, 4)
        assert len(rewards(buffer)) == (4 if n_steps == 2 else 6)
        for _ in range(20):
            assert set(buffer.get(4).rewards.tolist()) <= before
        workers.write(buffer, 100, 1)
        assert 100.0 in rewards(buffer)


@pytest.mark.long
def test_processes_killed_at_any_moment_harm_nobody() -> None:
    buffer = make(buffer_size=8)
    workers.write(buffer, 1, 8)
    for i in range(12):
        process = start(workers.write, buffer, 1000 * i, None)
        time.sleep(0.005 + 0.003 * i)
        os.kill(process.pid, signal.SIGKILL)
        process.join(30)
        assert len(buffer) == 8
        assert is_whole(buffer.get(14))
        workers.write(buffer, 1, 1)
    assert len(buffer) == 8


@pytest.mark.long
def test_a_buffer_reaches_a_new_process_and_comes_back_through_a_queue() -> None:
    buffer = make()
    results = SPAWN.Queue()
    process = start(workers.add_and_report, buffer, results, context=SPAWN)
    assert results.get(timeout=60) == 1
    process.join(30)
    assert buffer.get(1).rewards.item() >= 7.0
    results.put(buffer)
    again: SharedReplayBuffer = results.get(timeout=30)
    again.add(*step_of(9, 2))
    assert len(buffer) == len(again) == 2


def test_every_process_draws_its_own_rows() -> None:
    buffer = make()
    workers.write(buffer, 0, 50)
    results = FORK.Queue()
    processes = [start(workers.first_draw, buffer, results) for _ in range(2)]
    drawn = [results.get(timeout=60) for _ in processes] + [buffer.get(20).rewards.tolist()]
    for process in processes:
        process.join(30)
    assert len({tuple(one) for one in drawn}) == 3


def test_threads_take_turns() -> None:
    buffer = make(buffer_size=1000)
    threads = [threading.Thread(target=workers.write, args=(buffer, i, 100)) for i in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if len(buffer) >= 5:
            assert is_whole(buffer.get(10))
    assert len(buffer) == 300


def test_a_reset_is_seen_by_all_handles() -> None:
    buffer = make(buffer_size=3, reset_strategy=ResetStrategy.AUTO)
    workers.write(buffer, 0, 4)
    assert len(buffer) == 1
    buffer.reset()
    assert len(buffer) == 0
    with pytest.raises(ValueError, match="buffer is empty: add steps before sampling"):
        buffer.get(1)
    workers.write(buffer, 5, 2)
    assert set(buffer.get(4).rewards.tolist()) <= {5.0, 5.125, 6.0, 6.125}


def test_more_memory_than_there_is_raises() -> None:
    with pytest.raises(MemoryError, match="cannot share"):
        make(buffer_size=2**40)


def test_a_step_that_fails_half_way_is_not_seen() -> None:
    buffer = make(buffer_size=2)
    workers.write(buffer, 1, 2)
    columns: Any = buffer._columns_here
    whole = columns.tensors
    columns.tensors = whole[:1]
    with pytest.raises(ValueError, match="zip"):
        buffer.add(*step_of(5, 2))
    columns.tensors = whole
    assert len(rewards(buffer)) == 2
    assert set(torch.unique(buffer.get(2).rewards).tolist()) <= {2.0, 2.125}
    workers.write(buffer, 8, 1)
    assert len(rewards(buffer)) == 4
