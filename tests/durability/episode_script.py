"""What writers of episodes do until they are killed, and a model of what they leave.

A step is known by its number; all of its fields follow from it, but for the label, which `update`
changes later.
"""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave import EpisodeBuffer
from sharpwave.buffers.folder import is_store
from sharpwave.episodes import ABORTED, COMPLETE

OPEN = 0
MAX_TIMESTEPS = 60
FIELDS = {
    "number": "int64",
    "frame": ("uint8", 2048),  # so large that a file holds few of them
    "pair": ("float", 2),
    "label": "int",
}
META = {"task": "int", "score": ("float", (), -1.0)}


def steps(numbers: Any) -> dict[str, Any]:
    """The fields of steps by their numbers [T]."""
    number = np.asarray(numbers, np.int64)
    return {
        "number": number,
        "frame": np.broadcast_to((number * 7 % 251)[..., None], (*number.shape, 2048)),
        "pair": np.stack([number % 1000, -(number % 1000)], axis=-1).astype(np.float32),
        "label": np.zeros(number.shape, np.int32),
    }


@dataclass
class Episode:
    """One of the model."""

    id: int
    task: int
    score: float = -1.0
    numbers: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    flag: int = OPEN

    def append(self, numbers: list[int]) -> None:
        self.numbers += numbers
        self.labels += [0] * len(numbers)

    @property
    def seen(self) -> tuple[Any, ...]:
        """What a reader sees of it."""
        return (self.id, self.flag, self.task, self.score, self.numbers, self.labels)


@dataclass
class EpisodeModel:
    """What a folder of episodes holds."""

    max_episodes: int
    circular: bool
    episodes: list[Episode] = field(default_factory=list)
    next_id: int = 0
    open: Episode | None = None

    @property
    def n_complete(self) -> int:
        return sum(episode.flag == COMPLETE for episode in self.episodes)

    def check_room(self, n: int = 1) -> None:
        if (0 if self.circular else self.n_complete) + n > self.max_episodes:
            raise ValueError("full")

    def begin(self, task: int = 0) -> Episode:
        self.check_room()
        self.open = Episode(self.next_id, task)
        self.episodes.append(self.open)
        self.next_id += 1
        return self.open

    def end(self, flag: int) -> None:
        """Without making room."""
        assert self.open is not None
        self.open.flag = flag
        if not self.open.numbers:
            self.episodes.pop()
            self.next_id -= 1
        self.open = None

    def evict(self) -> None:
        while self.circular and self.n_complete > self.max_episodes:
            self.episodes.pop(0)

    def recovered(self) -> EpisodeModel:
        model = copy.deepcopy(self)
        if model.open is not None:
            model.end(ABORTED)
        model.evict()
        return model

    @property
    def seen(self) -> list[tuple[Any, ...]]:
        """What a reader sees."""
        return [episode.seen for episode in self.episodes if episode.flag != OPEN]


class Writer:
    """A buffer and the episode that is open."""

    def __init__(self, buffer: EpisodeBuffer) -> None:
        self.buffer = buffer
        self.block = contextlib.ExitStack()
        self.final: dict[str, Any] = {}

    def close(self) -> None:
        self.buffer.close()
        self.block.pop_all()  # its episode went with the buffer


@dataclass(frozen=True)
class Begin:
    task: int

    def perform(self, writer: Writer) -> None:
        block = contextlib.ExitStack()
        writer.final = block.enter_context(writer.buffer.one_episode(task=self.task))
        writer.block = block

    def commits(self, model: EpisodeModel) -> Iterator[None]:
        model.begin(self.task)
        yield


@dataclass(frozen=True)
class Store:
    """Starts an episode if none is open."""

    number: int

    def perform(self, writer: Writer) -> None:
        writer.buffer.store(**steps(self.number))

    def commits(self, model: EpisodeModel) -> Iterator[None]:
        if model.open is None:
            model.begin()
            yield
        assert model.open is not None
        if len(model.open.numbers) == MAX_TIMESTEPS:
            raise ValueError("too long")
        model.open.append([self.number])
        yield


@dataclass(frozen=True)
class End:
    score: float

    def perform(self, writer: Writer) -> None:
        writer.final["score"] = self.score
        writer.block.close()
        writer.buffer.advance_episode()

    def commits(self, model: EpisodeModel) -> Iterator[None]:
        if model.open is None:
            return
        if model.open.task:
            model.open.score = self.score
            yield
        model.end(COMPLETE)
        yield
        model.evict()
        yield


class Oops(Exception):
    """Thrown into the block of an episode."""


@dataclass(frozen=True)
class Abort:
    def perform(self, writer: Writer) -> None:
        def fail() -> None:
            raise Oops

        block, writer.block = writer.block.pop_all(), contextlib.ExitStack()
        with contextlib.suppress(Oops), block:
            fail()
        writer.buffer.advance_episode()  # it was begun without a block

    def commits(self, model: EpisodeModel) -> Iterator[None]:
        if model.open is None:
            return
        model.end(ABORTED if model.open.task else COMPLETE)
        yield
        model.evict()
        yield


@dataclass(frozen=True)
class StoreEpisode:
    task: int
    numbers: list[int]

    def perform(self, writer: Writer) -> None:
        writer.buffer.store_episode(**steps(self.numbers), task=self.task, score=0.5)

    def commits(self, model: EpisodeModel) -> Iterator[None]:
        episode = model.begin(self.task)
        episode.score = 0.5
        yield
        episode.append(self.numbers)
        yield
        model.end(COMPLETE)
        yield
        model.evict()
        yield


@dataclass(frozen=True)
class Flush:
    def perform(self, writer: Writer) -> None:
        writer.buffer.flush()

    def commits(self, model: EpisodeModel) -> Iterator[None]:
        yield


@dataclass(frozen=True)
class Clear:
    def perform(self, writer: Writer) -> None:
        writer.buffer.clear()

    def commits(self, model: EpisodeModel) -> Iterator[None]:
        model.episodes.clear()
        yield


Operation = Begin | Store | End | Abort | StoreEpisode | Flush | Clear


def operations(seed: str) -> Iterator[Operation]:
    """What a writer does: blocks of steps, whole episodes, and now and then something else."""
    rng = random.Random(seed)
    numbers = iter(range(rng.randrange(10**12), 10**13))

    def length() -> int:
        return rng.choice([0, 1, 2, 5, 10, 20, 40, MAX_TIMESTEPS + 2])

    while True:
        task = rng.randrange(1, 1000)
        kind = rng.choices(
            ["block", "bare", "aborted", "whole", "flush", "clear"], [30, 10, 10, 30, 3, 1]
        )[0]
        if kind in ("block", "aborted"):
            yield Begin(task)
        if kind in ("block", "bare", "aborted"):
            for _ in range(length()):
                yield Store(next(numbers))
            yield Abort() if kind == "aborted" else End(rng.randrange(100) / 4)
        elif kind == "whole":
            count = max(length() % MAX_TIMESTEPS, 1)
            yield StoreEpisode(task, [next(numbers) for _ in range(count)])
        else:
            yield Flush() if kind == "flush" else Clear()


@dataclass(frozen=True)
class Episodes:
    """A buffer of episodes to kill."""

    circular: bool
    max_episodes: int = 6
    durability: str = "process"

    def new_model(self) -> EpisodeModel:
        return EpisodeModel(self.max_episodes, self.circular)

    @contextlib.contextmanager
    def open(self, folder: Path) -> Iterator[Writer]:
        buffer = EpisodeBuffer(
            folder,
            self.max_episodes,
            MAX_TIMESTEPS,
            FIELDS,
            META,
            circular=self.circular,
            durability=self.durability,
        )
        with contextlib.closing(Writer(buffer)) as writer:
            yield writer

    def operations(self, seed: str) -> Iterator[Operation]:
        return operations(seed)

    def matches(self, folder: Path, model: EpisodeModel) -> str:
        if not is_store(folder):  # killed while it was made
            return "" if not model.next_id else "there is no store"
        with EpisodeBuffer.from_folder(folder, read_only=True) as buffer:
            return compare(buffer, model)

    def matches_writer(self, writer: Writer, model: EpisodeModel) -> str:
        return compare(writer.buffer, model)


def compare(buffer: EpisodeBuffer, model: EpisodeModel) -> str:
    """How what a buffer holds differs from a model."""
    found = list(look(buffer))
    if found == model.seen:
        return ""
    return f"found {[_short(e) for e in found]}, expected {[_short(e) for e in model.seen]}"


def look(buffer: EpisodeBuffer) -> Iterator[tuple[Any, ...]]:
    """What a reader sees. Steps whose fields do not belong together are a failure at once."""
    table = buffer.episodes(aborted=True)
    for i in range(len(table)):
        rows = buffer.gather(np.arange(table.starts[i], table.starts[i] + table.lengths[i]))
        for name, expected in steps(rows["number"]).items():
            if name != "label":
                np.testing.assert_array_equal(rows[name], expected, err_msg=name)
        yield (
            int(table.ids[i]),
            int(table.flags[i]),
            int(table.meta["task"][i]),
            float(table.meta["score"][i]),
            rows["number"].tolist(),
            rows["label"].tolist(),
        )


def _short(episode: tuple[Any, ...]) -> str:
    number, flag, task, score, numbers, labels = episode
    head = numbers[0] if numbers else ""
    return f"<{number} {'OCA'[flag]} task {task} {score}: {len(numbers)} from {head} {set(labels)}>"
