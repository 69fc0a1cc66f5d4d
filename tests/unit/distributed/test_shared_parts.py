"""Unrolls and weights in shared memory: whole, of any form, and in the memory that they need."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from sharpwave.collect import Rollout
from sharpwave.core.tree import leaves
from sharpwave.distributed import Unroll
from sharpwave.distributed.board import Board
from sharpwave.distributed.ring import UnrollReader, UnrollWriter

T, N = 5, 3


def unroll(rng: np.random.Generator, ends: int, *, masks: bool = False, n: int = N) -> Unroll:
    def floats(*shape: int) -> Any:
        return rng.normal(size=shape).astype(np.float32)

    def obs(*shape: int) -> Any:
        pixels = rng.integers(0, 256, (*shape, 2, 2)).astype(np.uint8)
        return {"pixels": pixels, "rest": (floats(*shape, 4), rng.normal(size=shape))}

    flags = ("terminated", "truncated", "starts", "valid")
    numbers = ("log_probs", "rewards", "values", "next_values", "advantages", "returns")
    columns: dict[str, Any] = {name: rng.random((T, n)) < 0.5 for name in flags}
    rollout = Rollout(
        obs=obs(T, n),
        actions=rng.integers(0, 2, (T, n)),
        **columns,
        **{name: floats(T, n) for name in numbers},
        masks=rng.random((T, n, 2)) < 0.5 if masks else None,
        last_obs=obs(n),
        final_obs=obs(ends),
    )
    lengths = rng.integers(0, 9, ends)
    return Unroll(1, 7, rollout, rng.normal(size=ends), lengths, np.ones(ends // 2))


def same(found: Unroll, given: Unroll) -> None:
    assert (found.actor, found.version) == (given.actor, given.version)
    mine, theirs = dict(leaves(found.columns())), dict(leaves(given.columns()))
    assert mine.keys() == theirs.keys()
    for name, column in theirs.items():
        np.testing.assert_array_equal(mine[name], column, err_msg=name, strict=True)
    assert np.isnan(found.rollout.values).all()  # what nobody takes does not travel


def test_unrolls_come_out_as_they_went_in() -> None:
    rng = np.random.default_rng(1)
    writer = UnrollWriter(2)
    reader: UnrollReader | None = None
    for number in range(6):
        given = [unroll(rng, ends) for ends in (number, T * N)]  # as many as may end
        written = [writer.write(slot, one) for slot, one in enumerate(given)]
        assert [is_new for _, is_new in written] == [number == 0, False]
        if reader is None:
            assert writer.form is not None
            reader = UnrollReader(writer.form, os.dup(writer.descriptor))
        found = [reader.read(slot, counts, 1, 7) for slot, (counts, _) in enumerate(written)]
        for one, other in zip(found, given, strict=True):
            same(one, other)


def test_what_was_read_stays_when_its_slot_is_written_again() -> None:
    rng = np.random.default_rng(2)
    first, second = unroll(rng, 2), unroll(rng, 2)
    writer = UnrollWriter(1)
    counts, _ = writer.write(0, first)
    assert writer.form is not None
    found = UnrollReader(writer.form, os.dup(writer.descriptor)).read(0, counts, 1, 7)
    writer.write(0, second)
    same(found, first)


def test_another_form_has_memory_of_its_own() -> None:
    """Masks may appear late; what waits in the old memory can still be read."""
    rng = np.random.default_rng(3)
    plain, masked = unroll(rng, 1), unroll(rng, 1, masks=True)
    writer, readers, counts = UnrollWriter(1), [], []
    for one in (plain, masked):
        found, is_new = writer.write(0, one)
        assert is_new
        assert writer.form is not None
        readers.append(UnrollReader(writer.form, os.dup(writer.descriptor)))
        counts.append(found)
    same(readers[0].read(0, counts[0], 1, 7), plain)
    same(readers[1].read(0, counts[1], 1, 7), masked)


def test_memory_is_taken_as_far_as_unrolls_need_it() -> None:
    rng = np.random.default_rng(4)
    writer = UnrollWriter(100)
    writer.write(0, unroll(rng, 0, n=400))
    status = os.fstat(writer.descriptor)
    assert status.st_blocks * 512 < 2 * unroll(rng, 0, n=400).nbytes
    assert status.st_size > 100 * unroll(rng, 0, n=400).nbytes


def test_nothing_is_read_of_a_board_before_somebody_writes() -> None:
    with pytest.raises(LookupError, match="no weights were written"):
        Board(3).read(np.zeros(3, np.float32))


WRITE = """
import select
import sys
import numpy as np
from sharpwave.distributed.board import Board
board = Board(20_000, int(sys.argv[1]))
version = 0
while not select.select([sys.stdin], [], [], 0)[0] or version < 5000:
    version += 1
    board.write(np.full(20_000, version, np.float32), version)
print(version)
"""


@pytest.mark.long
def test_weights_are_whole_however_often_another_process_writes_them() -> None:
    """All weights are their version, so that a mixture is seen."""
    board = Board(20_000)
    board.write(np.zeros(20_000, np.float32), 0)
    out, versions, changes = np.zeros(20_000, np.float32), [0], 0
    command = [sys.executable, "-c", WRITE, str(board.descriptor)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, pass_fds=[board.descriptor], **pipes) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        while writer.poll() is None:
            versions.append(board.read(out))
            assert (out == versions[-1]).all()
            changes += versions[-1] != versions[-2]
            if changes > 500:  # it reads while the other one writes, or between two of its turns
                writer.stdin.close()
        assert board.read(out) == int(writer.stdout.read())
    assert writer.returncode == 0
    assert versions == sorted(versions)
