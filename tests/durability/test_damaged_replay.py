"""Files of replay buffers that are cut, removed, or have bits flipped."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

from sharpwave import MmapReplayBuffer, SharpwaveIOError
from tests.durability.damage import Damage, damaged_copies
from tests.durability.replay_model import Found, Kind, look, push
from tests.reference.steps import Steps

KINDS = [Kind("flat", prioritized=True), Kind("frames", n_envs=2, prioritized=True)]


def filled(kind: Kind, folder: Path) -> Found:
    """A closed buffer, and what it holds."""
    steps = Steps(kind.schema, kind.n_envs or 1)
    with kind.make(folder) as buffer:
        for i, row in enumerate(steps.take(150)):
            push(buffer, row, i % (kind.n_envs or 1), 1 + i % 7)
        buffer.sample(10)
    with MmapReplayBuffer.open(folder, read_only=True) as buffer:
        return look(buffer, kind, drawing=False)


def opened(folder: Path, **options: Any) -> MmapReplayBuffer | SharpwaveIOError:
    """The buffer in a folder, or why there is none."""
    try:
        return MmapReplayBuffer.open(folder, **options)
    except SharpwaveIOError as error:
        return error


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("flips", [1, pytest.param(40, marks=pytest.mark.slow)])
def test_damage_is_named_and_costs_only_what_it_touches(
    flips: int, kind: Kind, memory_path: Path
) -> None:
    expected = filled(kind, memory_path / "sound")
    work = memory_path / "work"
    rng = random.Random(os.urandom(8))
    for damage, copied in damaged_copies(memory_path / "sound", work, rng, flips):
        found = opened(copied, read_only=True, verify=True)
        if isinstance(found, SharpwaveIOError):
            named = damage.file if damage.file != "header.json" else str(copied)
            assert named in str(found), damage
        else:
            assert look(found, kind, drawing=False) == expected, damage
            found.close()
        # Without a look at checksums what is read may be wrong, but nothing worse happens.
        unchecked = opened(copied, read_only=True)
        if isinstance(unchecked, MmapReplayBuffer):
            unchecked.gather(unchecked.indices())
            unchecked.close()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            repaired = opened(copied, repair=True)
        if isinstance(repaired, SharpwaveIOError):
            assert damage.file == "state", (damage, repaired)
            continue
        with repaired:
            kept = look(repaired, kind, drawing=False)
            assert kept.rows.items() <= expected.rows.items(), damage
            if kept != expected:
                assert damage.file in str(caught[0].message), damage
            if damage.file == "priorities":
                assert (kept.rows, kept.marks) == (expected.rows, expected.marks), damage
            if damage.file == "marks" and damage.flip is not None:
                assert len(kept.rows) >= len(expected.rows) - 1, damage
            push(repaired, Steps(kind.schema, kind.n_envs or 1).step(), 0, 2.0)
        with MmapReplayBuffer.open(copied, verify=True) as buffer:
            rows = look(buffer, kind, drawing=False).rows
            *old, newest = (i for i in rows if i % (kind.n_envs or 1) == 0)
            assert newest not in expected.rows
            assert {i: rows[i] for i in old} == {i: kept.rows[i] for i in old}, damage
            assert len(old) >= len(set(kept.rows) - set(rows)), damage


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_commit_words_that_make_no_sense_are_no_worse_than_an_error(
    kind: Kind, memory_path: Path
) -> None:
    """Those of a writer that died have no checksum."""
    crashed, copied = memory_path / "crashed", memory_path / "copied"
    filled(kind, crashed)
    words = bytearray((crashed / "state").read_bytes())
    words[32:40] = bytes(8)  # the seal that closing leaves
    row = Steps(kind.schema, kind.n_envs or 1).step()
    for word, bit in itertools.product(range(9 + 2 * (kind.n_envs or 1)), (0, 20, 40, 63)):
        (crashed / "state").write_bytes(words)
        Damage("state", flip=(64 + 8 * word) * 8 + bit).apply(crashed)
        for options in ({"read_only": True}, {"repair": True}, {}):
            shutil.copytree(crashed, copied)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = opened(copied, **options)
            if isinstance(found, MmapReplayBuffer):
                if not found.read_only:
                    push(found, row)
                found.gather(found.indices())
                if len(found):
                    found.sample(1)
                found.close()
            shutil.rmtree(copied, ignore_errors=True)
