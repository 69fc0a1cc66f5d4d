"""Writers of episodes, which go on until they are killed."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave import EpisodeBuffer
from sharpwave.episodes import ABORTED, COMPLETE
from sharpwave.storage.folder import is_store
from tests.durability.episode_model import (
    FIELDS,
    MAX_TIMESTEPS,
    META,
    EpisodeModel,
    Seen,
    look,
    steps,
)


class Writer:
    """A buffer, and the block of the episode that is open."""

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
        writer.final = writer.block.enter_context(writer.buffer.one_episode(task=self.task))

    def commits(self, model: EpisodeModel) -> Iterator[None]:
        model.begin([self.task])
        yield


@dataclass(frozen=True)
class Store:
    """Begins an episode if none is open."""

    number: int
    fields: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", steps(self.number))

    def perform(self, writer: Writer) -> None:
        writer.buffer.store(**self.fields)

    def commits(self, model: EpisodeModel) -> Iterator[None]:
        if not model.open:
            model.begin([0])
            yield
        model.open[0].append(self.number)
        yield


@dataclass(frozen=True)
class End:
    """Ends an episode that was begun with a block."""

    score: float

    def perform(self, writer: Writer) -> None:
        writer.final["score"] = self.score
        writer.block.close()

    def commits(self, model: EpisodeModel) -> Iterator[None]:
        for episode in model.open:
            episode.score = self.score
            yield
        yield from model.end(COMPLETE)


@dataclass(frozen=True)
class Advance:
    """Ends an episode that was begun without one, or a batch."""

    def perform(self, writer: Writer) -> None:
        writer.buffer.advance_episode()

    def commits(self, model: EpisodeModel) -> Iterator[None]:
        model.ending = COMPLETE
        if model.batch:
            yield
        yield from model.end(COMPLETE)


class OopsError(Exception):
    """Thrown into the block of an episode."""


@dataclass(frozen=True)
class Abort:
    def perform(self, writer: Writer) -> None:
        def fail() -> None:
            raise OopsError

        with contextlib.suppress(OopsError), writer.block.pop_all():
            fail()

    def commits(self, model: EpisodeModel) -> Iterator[None]:
        yield from model.end(ABORTED)


@dataclass(frozen=True)
class StoreEpisode:
    task: int
    numbers: list[int]
    fields: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", steps(self.numbers))

    def perform(self, writer: Writer) -> None:
        writer.buffer.store_episode(**self.fields, task=self.task, score=0.5)

    def commits(self, model: EpisodeModel) -> Iterator[None]:
        (episode,) = model.begin([self.task])
        episode.score = 0.5
        yield
        episode.append(*self.numbers)
        yield
        yield from model.end(COMPLETE)


@dataclass(frozen=True)
class BeginBatch:
    tasks: list[int]

    def perform(self, writer: Writer) -> None:
        block = writer.buffer.batched_episode(len(self.tasks), task=self.tasks)
        writer.block.enter_context(block)

    def commits(self, model: EpisodeModel) -> Iterator[None]:
        model.begin(self.tasks, batch=True)
        yield


@dataclass(frozen=True)
class StoreBatch:
    numbers: list[int]
    active: list[bool]
    fields: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", steps(self.numbers))

    def perform(self, writer: Writer) -> None:
        writer.buffer.store_batch(np.array(self.active), **self.fields)

    def commits(self, model: EpisodeModel) -> Iterator[None]:
        if not model.open:
            model.begin([0] * len(self.numbers), batch=True)
            yield
        for episode, number, active in zip(model.open, self.numbers, self.active, strict=True):
            if active:
                episode.append(number)
        yield


@dataclass(frozen=True)
class StoreMeta:
    scores: list[float]

    def perform(self, writer: Writer) -> None:
        writer.buffer.store_meta_batch(score=self.scores)

    def commits(self, model: EpisodeModel) -> Iterator[None]:
        for episode, score in zip(model.open, self.scores, strict=True):
            episode.score = score
            yield


@dataclass(frozen=True)
class EndBatch:
    def perform(self, writer: Writer) -> None:
        writer.block.close()

    def commits(self, model: EpisodeModel) -> Iterator[None]:
        return Advance().commits(model)


@dataclass(frozen=True)
class Update:
    """Of some episodes, or of all."""

    positions: list[int] | None
    value: int

    def perform(self, writer: Writer) -> None:
        n = len(writer.buffer)
        positions = None if self.positions is None else [i for i in self.positions if i < n]
        writer.buffer.update(positions, label=self.value, score=float(self.value))

    def commits(self, model: EpisodeModel) -> Iterator[None]:
        complete = model.complete()
        wanted = range(len(complete)) if self.positions is None else self.positions
        model.update = [complete[i].id for i in wanted if i < len(complete)], self.value
        yield
        model.apply_update()
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


Operation = (
    Begin | Store | End | Advance | Abort | StoreEpisode
    | BeginBatch | StoreBatch | StoreMeta | EndBatch | Update | Flush | Clear
)  # fmt: skip
KINDS = {"block": 25, "bare": 10, "whole": 25, "batch": 20, "update": 5, "flush": 2, "clear": 1}


def operations(seed: str) -> Iterator[Operation]:
    """The work of a writer: episodes in every way there is, and now and then something else."""
    rng = random.Random(seed)
    numbers = count(rng.randrange(10**12))
    while True:
        kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
        length = rng.choice([0, 1, 2, 5, 10, 20, 40, MAX_TIMESTEPS + 2])
        if kind == "block":
            yield Begin(rng.randrange(1000))
            for _ in range(length):
                yield Store(next(numbers))
            yield End(rng.randrange(100) / 4) if rng.random() < 0.8 else Abort()
        elif kind == "bare":
            for _ in range(length):
                yield Store(next(numbers))
            yield Advance()
        elif kind == "whole":
            chosen = [next(numbers) for _ in range(max(1, min(length, MAX_TIMESTEPS)))]
            yield StoreEpisode(rng.randrange(1000), chosen)
        elif kind == "batch":
            yield from batch(rng, numbers, length)
        elif kind == "update":
            chosen = sorted(rng.sample(range(6), rng.randrange(1, 4)))
            yield Update(rng.choice([None, chosen]), rng.randrange(1, 1000))
        else:
            yield Flush() if kind == "flush" else Clear()


def batch(rng: random.Random, numbers: Iterator[int], length: int) -> Iterator[Operation]:
    """Episodes side by side."""
    n = rng.randrange(1, 4)
    yield BeginBatch([rng.randrange(1000) for _ in range(n)])
    for _ in range(length):
        yield StoreBatch([next(numbers) for _ in range(n)], rng.choices([True, False], [4, 1], k=n))
    if rng.random() < 0.5:
        yield StoreMeta([rng.randrange(100) / 4 for _ in range(n)])
    yield EndBatch() if rng.random() < 0.8 else Abort()


@dataclass(frozen=True)
class Episodes:
    """A buffer of episodes to kill."""

    circular: bool
    max_episodes: int = 6
    durability: str = "process"
    codec: str | None = None
    """Of the frames."""

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
            codecs={"frame": self.codec} if self.codec else None,
        )
        with contextlib.closing(Writer(buffer)) as writer:
            yield writer

    def operations(self, seed: str) -> Iterator[Operation]:
        return operations(seed)

    def look(self, folder: Path) -> list[Seen]:
        if not is_store(folder):  # killed while it was made
            return []
        with EpisodeBuffer.from_folder(folder, read_only=True) as buffer:
            return look(buffer)

    def open_reader(self, folder: Path) -> EpisodeBuffer | None:
        return EpisodeBuffer.from_folder(folder, read_only=True) if is_store(folder) else None

    def look_again(self, reader: EpisodeBuffer, found: list[Seen]) -> list[Seen]:
        return look(reader)

    def look_at(self, writer: Writer) -> list[Seen]:
        return look(writer.buffer)
