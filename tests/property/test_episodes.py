"""An EpisodeBuffer does what a list of episodes does, whatever happens to its process."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from sharpwave import EpisodeBuffer
from sharpwave.episodes import ABORTED, COMPLETE
from tests.examples import examples

META = {"task": "int", "final": ("float", 600)}
MAX_EPISODES = 4
MAX_TIMESTEPS = 12


@dataclass
class Episode:
    """The buffer's expected knowledge of an episode."""

    task: int
    flag: int = 0
    steps: list[float] = field(default_factory=list)


class Episodes(RuleBasedStateMachine):
    """A buffer beside a list, over crashes and reopenings."""

    pixels = 3

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")  # where syncing costs nothing
        self.root = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None))
        self.copies = 0
        self.value = 0.0

    @initialize(circular=st.booleans(), durability=st.sampled_from(["process", "power"]))
    def start(self, circular: bool, durability: str) -> None:
        self.circular = circular
        self.durability = durability
        self.folder = self.root / "0"
        self.finished: list[Episode] = []
        self.open: Episode | None = None
        self.lanes: list[Episode] = []
        self.buffer = self.make()
        self.reader = EpisodeBuffer.from_folder(self.folder, read_only=True)

    def make(self) -> EpisodeBuffer:
        return EpisodeBuffer(
            self.folder,
            MAX_EPISODES,
            MAX_TIMESTEPS,
            {"obs": {"image": ("uint8", (self.pixels,)), "x": "float64"}, "reward": "float"},
            META,
            self.circular,
            durability=self.durability,
        )

    def n_complete(self) -> int:
        return sum(episode.flag == COMPLETE for episode in self.finished)

    def is_idle(self) -> bool:
        return self.open is None and not self.lanes

    def has_room(self, n: int) -> bool:
        return self.circular or self.n_complete() + n <= MAX_EPISODES

    def going_on(self) -> list[Episode]:
        return [*self.lanes, *([self.open] if self.open else [])]

    def finish(self, episodes: list[Episode], flag: int) -> None:
        for episode in episodes:
            episode.flag = flag
            if episode.steps:
                self.finished.append(episode)
        while self.circular and self.n_complete() > MAX_EPISODES:
            self.finished.pop(0)
        self.open = None
        self.lanes = []

    def images(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.repeat(values % 256, self.pixels).reshape(-1, self.pixels)

    def next_value(self) -> float:
        self.value += 1
        return self.value

    @precondition(lambda self: self.is_idle())
    @rule(task=st.integers(-5, 5))
    def begin(self, task: int) -> None:
        if not self.has_room(1):
            with pytest.raises(ValueError, match="full"):
                self.buffer._begin(task=task)
            return
        self.buffer._begin(task=task)
        self.open = Episode(task)

    @precondition(lambda self: not self.lanes)
    @rule(n=st.integers(1, 5))
    def store(self, n: int) -> None:
        for _ in range(n):
            value = self.next_value()
            image = np.full(self.pixels, value % 256, np.uint8)
            step = {"obs": {"image": image, "x": value}, "reward": value}
            if self.open is None and not self.has_room(1):
                with pytest.raises(ValueError, match="full"):
                    self.buffer.store(**step)
                return
            if self.open is None:
                self.open = Episode(0)
            if len(self.open.steps) == MAX_TIMESTEPS:
                with pytest.raises(ValueError, match="max_timesteps"):
                    self.buffer.store(**step)
                return
            self.buffer.store(**step)
            self.open.steps.append(value)

    @precondition(lambda self: self.is_idle())
    @rule(length=st.integers(1, MAX_TIMESTEPS), task=st.integers(-5, 5))
    def store_episode(self, length: int, task: int) -> None:
        values = [self.next_value() for _ in range(length)]
        data = {
            "obs.x": values,
            "obs.image": self.images(np.array(values)),
            "reward": values,
        }
        if not self.has_room(1):
            with pytest.raises(ValueError, match="full"):
                self.buffer.store_episode(**data, task=task)
            return
        self.buffer.store_episode(**data, task=task)
        self.finish([Episode(task, steps=values)], COMPLETE)

    @precondition(lambda self: self.is_idle())
    @rule(n=st.integers(1, 3))
    def begin_batch(self, n: int) -> None:
        if not self.has_room(n):
            with pytest.raises(ValueError, match="full"):
                self.buffer._begin_batch(n)
            return
        self.buffer._begin_batch(n, task=np.arange(n))
        self.lanes = [Episode(task) for task in range(n)]

    @precondition(lambda self: bool(self.lanes))
    @rule(active=st.lists(st.booleans(), min_size=3, max_size=3))
    def store_batch(self, active: list[bool]) -> None:
        mask = np.array(active[: len(self.lanes)])
        values = np.array([self.next_value() for _ in self.lanes])
        data = {
            "obs": {"image": self.images(values), "x": values},
            "reward": values,
        }
        longest = max(len(e.steps) + a for e, a in zip(self.lanes, mask, strict=True))
        if longest > MAX_TIMESTEPS:
            with pytest.raises(ValueError, match="max_timesteps"):
                self.buffer.store_batch(mask, **data)
            return
        self.buffer.store_batch(mask, **data)
        for episode, value, counts in zip(self.lanes, values, mask, strict=True):
            if counts:
                episode.steps.append(float(value))

    @precondition(lambda self: not self.is_idle())
    @rule()
    def end(self) -> None:
        self.buffer.advance_episode()
        self.finish(self.going_on(), COMPLETE)

    @precondition(lambda self: not self.is_idle())
    @rule()
    def abort(self) -> None:
        self.buffer._engine.abort()
        self.finish(self.going_on(), ABORTED)

    @precondition(lambda self: self.n_complete() > 0)
    @rule(data=st.data())
    def update(self, data: st.DataObject) -> None:
        complete = [episode for episode in self.finished if episode.flag == COMPLETE]
        position = data.draw(st.integers(0, len(complete) - 1))
        episode = complete[position]
        values = [self.next_value() for _ in episode.steps]
        image = self.images(np.array(values))
        self.buffer.update(position, obs={"x": values, "image": image}, reward=values, task=9)
        episode.steps = values
        episode.task = 9

    @precondition(lambda self: self.is_idle())
    @rule()
    def clear(self) -> None:
        self.buffer.clear()
        self.finished = []

    @rule()
    def flush(self) -> None:
        self.buffer.flush()

    def abort_all(self) -> None:
        self.finish(self.going_on(), ABORTED)

    @rule()
    def reopen(self) -> None:
        self.buffer.close()
        self.abort_all()
        self.buffer = self.make()

    @rule()
    def crash(self) -> None:
        self.copies += 1
        copied = self.root / str(self.copies)
        self.buffer._engine.settle()
        shutil.copytree(self.folder, copied)
        self.buffer.close()
        self.reader.close()
        shutil.rmtree(self.folder)
        self.folder = copied
        self.abort_all()
        self.reader = EpisodeBuffer.from_folder(copied, read_only=True)
        self.buffer = self.make()

    @invariant()
    def the_same_as_the_list(self) -> None:
        if not hasattr(self, "buffer"):
            return
        for buffer in (self.buffer, self.reader):
            assert buffer.num_episodes == self.n_complete()
            table = buffer.episodes(aborted=True)
            assert table.flags.tolist() == [episode.flag for episode in self.finished]
            assert table.meta["task"].tolist() == [episode.task for episode in self.finished]
            assert (np.diff(table.ids) > 0).all()
            width = MAX_TIMESTEPS
            steps = buffer.gather_ranges(table.starts, table.lengths, width)
            expected = np.zeros((len(self.finished), width))
            for row, episode in zip(expected, self.finished, strict=True):
                row[: len(episode.steps)] = episode.steps
            assert (steps["obs.x"] == expected).all()
            assert (steps["reward"] == expected).all()
            assert (steps["obs.image"] == (expected % 256)[:, :, None]).all()

    def teardown(self) -> None:
        if hasattr(self, "buffer"):
            self.buffer.verify()
            self.buffer.close()
            EpisodeBuffer.from_folder(self.folder, read_only=True, verify=True).close()
        shutil.rmtree(self.root)


class WideEpisodes(Episodes):
    """The same with eight steps to a file, so that files come and go."""

    pixels = 8192


for machine in (Episodes, WideEpisodes):
    test = machine.TestCase
    test.settings = settings(max_examples=examples(30), stateful_step_count=30, deadline=None)
    globals()[f"Test{machine.__name__}"] = test
del machine, test
