"""Writers of a replay buffer, which go on until they are killed."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from sharpwave import MmapReplayBuffer
from sharpwave.storage.folder import is_store
from tests.durability.replay_model import Found, Kind, ReplayModel, look, push
from tests.reference.nests import Nest
from tests.reference.steps import Steps, as_batch


@dataclass(frozen=True)
class Push:
    row: dict[str, Nest]
    env: int
    priority: float | None

    def perform(self, buffer: MmapReplayBuffer) -> None:
        push(buffer, self.row, self.env, self.priority)

    def commits(self, model: ReplayModel) -> Iterator[None]:
        model.push(self.row, self.env, self.priority)
        yield


@dataclass(frozen=True)
class PushBatch:
    """Steps of all environments: all or none of them outlive a kill, and are counted."""

    rows: list[dict[str, Nest]]

    def perform(self, buffer: MmapReplayBuffer) -> None:
        buffer.push_batch(**as_batch(self.rows))

    def commits(self, model: ReplayModel) -> Iterator[None]:
        for i, row in enumerate(self.rows):
            model.push(row, i % (model.kind.n_envs or 1), None)
        yield


@dataclass(frozen=True)
class Draw:
    count: int

    def perform(self, buffer: MmapReplayBuffer) -> None:
        buffer.sample(self.count)

    def commits(self, model: ReplayModel) -> Iterator[None]:
        if len(model.oracle) < self.count:
            raise ValueError("there are fewer")
        model.draws += 1
        model.events.append(("draw", self.count))
        yield
        model.sampled += self.count
        yield


@dataclass(frozen=True)
class UpdatePriorities:
    """Of some steps, by how far they are from the newest."""

    back: list[int]
    priorities: list[float]

    def perform(self, buffer: MmapReplayBuffer) -> None:
        ids = buffer.indices()
        if len(ids):
            buffer.update_priorities(
                ids[[-1 - back % len(ids) for back in self.back]], self.priorities
            )

    def commits(self, model: ReplayModel) -> Iterator[None]:
        ids = model.oracle.ids()
        if not ids:
            return
        chosen = [ids[-1 - back % len(ids)] for back in self.back]
        model.updating = dict(zip(chosen, self.priorities, strict=True))
        yield
        model.updating = {}
        before = model.oracle.max_priority
        model.oracle.update_priorities(chosen, self.priorities)
        model.events.append(("update_priorities", chosen, self.priorities))
        if before != model.oracle.max_priority:
            after, model.oracle.max_priority = model.oracle.max_priority, before
            yield
            model.oracle.max_priority = after
        yield


@dataclass(frozen=True)
class SetBeta:
    beta: float

    def perform(self, buffer: MmapReplayBuffer) -> None:
        buffer.set_beta(self.beta)

    def commits(self, model: ReplayModel) -> Iterator[None]:
        model.beta = self.beta
        model.events.append(("set_beta", self.beta))
        yield


@dataclass(frozen=True)
class Flush:
    def perform(self, buffer: MmapReplayBuffer) -> None:
        buffer.flush()

    def commits(self, model: ReplayModel) -> Iterator[None]:
        yield


@dataclass(frozen=True)
class Clear:
    def perform(self, buffer: MmapReplayBuffer) -> None:
        buffer.clear()

    def commits(self, model: ReplayModel) -> Iterator[None]:
        oracle = model.oracle
        for env in range(oracle.streams):
            oracle.floor[env] = len(oracle.slots[env])
            oracle.pending[env], oracle.open[env] = None, False
        oracle.max_priority = 1.0
        model.events.append(("clear",))
        yield


Operation = Push | PushBatch | Draw | UpdatePriorities | SetBeta | Flush | Clear
KINDS = {"push": 60, "batch": 10, "draw": 10, "priorities": 10, "flush": 1, "clear": 0.3}


def operations(kind: Kind, seed: str) -> Iterator[Operation]:
    """The work of a writer: pushes, and between them draws and priorities for what was drawn."""
    rng = random.Random(seed)
    steps = Steps(kind.schema, kind.n_envs or 1)
    steps.count = rng.randrange(10**9)
    while True:
        doing = rng.choices(list(KINDS), list(KINDS.values()))[0]
        if doing == "push":
            env = rng.randrange(kind.n_envs or 1)
            ending = rng.choice(["", "", "", "terminated", "truncated"])
            row = steps.step(env, ending, reset=rng.random() < 0.1, jump=rng.random() < 0.1)
            given = kind.prioritized and rng.random() < 0.5
            yield Push(row, env, rng.choice([0.1, 0.5, 2.0, 9.0]) if given else None)
        elif doing == "batch":
            yield PushBatch(steps.take(rng.randrange(1, 8) * (kind.n_envs or 1)))
        elif doing == "draw":
            yield Draw(rng.randrange(1, 30))
        elif doing == "priorities" and kind.prioritized:
            back = rng.sample(range(120), rng.randrange(1, 10))
            yield UpdatePriorities(back, [rng.randrange(1, 64) / 16 for _ in back])
            yield SetBeta(rng.random())
        elif doing == "flush":
            yield Flush()
        elif doing == "clear":
            yield Clear()


@dataclass(frozen=True)
class Replay:
    """A replay buffer to kill."""

    kind: Kind

    def new_model(self) -> ReplayModel:
        return ReplayModel(self.kind)

    @contextlib.contextmanager
    def open(self, folder: Path) -> Iterator[MmapReplayBuffer]:
        if is_store(folder):
            buffer = MmapReplayBuffer.open(folder, continue_episodes=self.kind.continues)
        else:
            buffer = self.kind.make(folder)
        with buffer:
            yield buffer

    def operations(self, seed: str) -> Iterator[Operation]:
        return operations(self.kind, seed)

    def look(self, folder: Path) -> Found:
        if not is_store(folder):  # killed while it was made
            return self.new_model().expected()
        with MmapReplayBuffer.open(folder, read_only=True) as buffer:
            return look(buffer, self.kind, drawing=False)

    def open_reader(self, folder: Path) -> MmapReplayBuffer | None:
        return MmapReplayBuffer.open(folder, read_only=True) if is_store(folder) else None

    def look_again(self, reader: MmapReplayBuffer, found: Found) -> Found:
        again = look(reader, self.kind, drawing=False)
        # A reader has its own counters and weights.
        return replace(found, rows=again.rows, marks=again.marks, priorities=again.priorities)

    def look_at(self, writer: MmapReplayBuffer) -> Found:
        return look(writer, self.kind, drawing=True)
