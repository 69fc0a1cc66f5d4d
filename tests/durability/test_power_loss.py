"""After the loss of power, of which pages survive in any mixture, the last flush counts."""

from __future__ import annotations

import contextlib
import copy
import os
import random
import shutil
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave import EpisodeBuffer, MmapReplayBuffer
from tests.durability import episode_script, replay_script
from tests.durability.crash import Subject, apply
from tests.durability.episode_model import OPEN, EpisodeModel, look, steps
from tests.durability.episode_script import Episodes
from tests.durability.power import copies_of_words, lose_power, read_files
from tests.durability.replay_model import Kind, ReplayModel
from tests.durability.replay_model import look as look_at_replay
from tests.durability.replay_script import Replay


def losses(
    subject: Subject[Any], work: Path, rng: random.Random, n_operations: int
) -> Iterator[tuple[Path, Any, Any]]:
    """Folders after the loss of power, each with the model of the last flush and the one of now."""
    folder, lost = work / "buffer", work / "lost"
    model = subject.new_model()
    flushed, files = copy.deepcopy(model), None
    flush: Any = episode_script.Flush() if isinstance(subject, Episodes) else replay_script.Flush()
    with contextlib.ExitStack() as closing:
        writer = closing.enter_context(subject.open(folder))
        for operation in islice(subject.operations(str(rng.random())), n_operations):
            chance = rng.random()
            if chance < 0.1:
                flush.perform(writer)
                flushed, files = copy.deepcopy(model), read_files(folder)
            elif chance < 0.12 and not getattr(model, "open", False):
                closing.close()
                model = model.recovered()
                flushed, files = copy.deepcopy(model), read_files(folder)
                writer = closing.enter_context(subject.open(folder))
                files["state"] = read_files(folder)["state"]  # whose seal is broken first
            with contextlib.suppress(ValueError):
                operation.perform(writer)
            apply(operation, model)
            if files is None or rng.random() > 0.2:
                continue
            now = read_files(folder)
            if copies_of_words(now) != copies_of_words(files):
                files = None  # the caretaker has saved more since
                continue
            lose_power(files, now, rng, lost)
            yield lost, copy.deepcopy(flushed), model
            shutil.rmtree(lost)


@pytest.mark.long
@pytest.mark.parametrize("n_operations", [200, pytest.param(4_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("circular", [False, True])
def test_episodes_are_those_of_the_last_flush(
    circular: bool, n_operations: int, memory_path: Path
) -> None:
    rng = random.Random(os.urandom(8))
    subject = Episodes(circular)
    count = 0
    for folder, flushed, _ in losses(subject, memory_path, rng, n_operations):
        assert isinstance(flushed, EpisodeModel)
        open_ids = {episode.id: episode for episode in flushed.open}
        with EpisodeBuffer.from_folder(folder, read_only=True, verify=True) as reader:
            assert not flushed.difference([e for e in look(reader) if e[0] not in open_ids])
        with subject.open(folder) as writer:
            found = look(writer.buffer)
            # What was open ends with the steps that were flushed, and may push others out.
            ended = {e[0]: e for e in found if e[0] in open_ids}
            assert {i: e[4] for i, e in ended.items()} == {
                i: e.numbers for i, e in open_ids.items() if e.numbers
            }
            for number, episode in open_ids.items():
                episode.flag = ended[number][1] if number in ended else OPEN
            flushed.evict()
            others = [e for e in found if e[0] not in open_ids]
            for episode in open_ids.values():
                flushed.episodes.remove(episode)
            assert not flushed.difference(others)
            with contextlib.suppress(ValueError):  # it is full
                writer.buffer.store_episode(**steps([1, 2, 3]))
                assert look(writer.buffer)[-1][4] == [1, 2, 3]
        count += 1
    assert count > n_operations / 100


@pytest.mark.long
@pytest.mark.parametrize("n_operations", [200, pytest.param(4_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "kind", [Kind("flat", prioritized=True), Kind("frames", n_envs=2)], ids=str
)
def test_replay_is_that_of_the_last_flush(kind: Kind, n_operations: int, memory_path: Path) -> None:
    rng = random.Random(os.urandom(8))
    count = 0
    for folder, flushed, now in losses(Replay(kind), memory_path, rng, n_operations):
        assert isinstance(flushed, ReplayModel)
        for read_only in (True, False):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                opened = MmapReplayBuffer.open(folder, read_only=read_only, verify=True)
            with opened as buffer:
                found = look_at_replay(buffer, kind, drawing=False)
                expected = flushed.expected() if read_only else flushed.recovered().expected()
                # Files of the oldest steps, which were pushed out since, may be gone.
                gone = set(expected.rows) - set(found.rows)
                assert not gone or "is missing" in str(caught[0].message)
                assert all(now.oracle.find(number) is None for number in gone)
                assert {**expected.rows, **found.rows} == expected.rows
                assert (found.max_priority, found.beta) == (expected.max_priority, expected.beta)
                assert found.counters == expected.counters
                for step in now.steps():  # a priority may be the later one already
                    if step.id in expected.priorities:
                        allowed = (expected.priorities[step.id], step.priority)
                        assert np.isclose(found.priorities[step.id], allowed, rtol=1e-5).any()
        count += 1
    assert count > n_operations / 100
