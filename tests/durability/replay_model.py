"""A model of what the folder of a replay buffer holds: the oracle of all buffers, with counters."""

from __future__ import annotations

import copy
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave import Field, MmapReplayBuffer, Schema, Sequence
from tests.reference.nests import Nest
from tests.reference.replay import ReplayOracle, Step

ALPHA = 0.6
DRAWN = 16
CAPACITY = 100
FLAGS: dict[str, Any] = {"reward": "float32", "terminated": "bool", "truncated": "bool"}
FLAT: dict[str, Any] = {"obs": ("float32", 300), "action": "int64", **FLAGS}
FRAMES: dict[str, Any] = {"obs": Field("uint8", (3, 700), stack=3), "action": "int64", **FLAGS}


@dataclass(frozen=True)
class Kind:
    """Of a buffer. Rows are so large that a file holds few of them."""

    fields: str
    n_envs: int | None = None
    prioritized: bool = False
    continues: bool = True
    """A new writer goes on with the episodes that were open."""
    durability: str = "process"

    @property
    def schema(self) -> Schema:
        if self.n_envs is None:
            return Schema({**FLAT, "next_obs": FLAT["obs"]})
        schema = Schema({"flat": FLAT, "frames": FRAMES}[self.fields])
        return schema.with_next_obs()

    def make(self, folder: Path) -> MmapReplayBuffer:
        return MmapReplayBuffer(
            CAPACITY // 4,
            CAPACITY,
            cold_path=folder,
            fields=self.schema,
            n_envs=self.n_envs,
            prioritized={"alpha": ALPHA} if self.prioritized else False,
            durability="power" if self.durability == "power" else "process",
        )


@dataclass(frozen=True)
class Found:
    """The content of a folder."""

    rows: dict[int, bytes]
    """The steps by id."""
    marks: dict[int, tuple[bool, bool]]
    """True if a step is the first of its episode, and true if another one follows."""
    priorities: dict[int, float]
    max_priority: float
    beta: float
    counters: tuple[int, int, int]
    """Steps pushed and sampled, and draws."""
    drawn: Any = None
    """The ids of the next batch, of a writer."""


@dataclass
class ReplayModel:
    """The content of a folder."""

    kind: Kind
    oracle: ReplayOracle = field(init=False, compare=False)
    pushed: int = 0
    sampled: int = 0
    draws: int = 0
    beta: float = 0.4
    events: list[tuple[Any, ...]] = field(default_factory=list, compare=False)
    """The operations that bring a buffer that nobody kills into the same state."""
    exact: bool = True
    """There is such a buffer."""
    updating: dict[int, float] = field(default_factory=dict)
    """Priorities that may have been changed already."""

    def __post_init__(self) -> None:
        self.oracle = ReplayOracle(CAPACITY, self.kind.schema, self.kind.n_envs)

    def __deepcopy__(self, memo: dict[int, Any]) -> ReplayModel:
        other = replace(self, events=list(self.events), updating=dict(self.updating))
        other.oracle = copy.copy(self.oracle)
        for name in ("floor", "pending", "open"):
            setattr(other.oracle, name, list(getattr(self.oracle, name)))
        other.oracle.slots = [
            [*([None] * floor), *(copy.copy(step) for step in slots[floor:])]
            for floor, slots in zip(self.oracle.floor, self.oracle.slots, strict=True)
        ]
        return other

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ReplayModel)
            and self.exact == other.exact
            and self.events == other.events
            and not self.difference(other.expected())
        )

    __hash__ = None  # type: ignore[assignment]

    def push(self, row: dict[str, Nest], env: int, priority: float | None) -> None:
        """A step, with the count of steps and the highest priority."""
        self.pushed += 1
        self.oracle.push(row, env, priority)
        self.events.append(("push", row, env, priority))

    def recovered(self) -> ReplayModel:
        model = copy.deepcopy(self)
        if self.kind.n_envs is not None and not self.kind.continues:
            for env in range(self.kind.n_envs):
                newest = model.oracle.newest(env)
                if model.oracle.open[env] and newest is not None:
                    newest.last = True
                model.oracle.open[env] = False
            model.exact = False
        return model

    def steps(self) -> list[Step]:
        return [self.oracle.step(i) for i in self.oracle.ids()]

    def expected(self) -> Found:
        steps = self.steps()
        return Found(
            {step.id: row_bytes(step.row) for step in steps},
            {s.id: (s.first, len(self.oracle.episode_from(s)) > 1) for s in steps}
            if self.kind.n_envs
            else {},
            {step.id: step.priority for step in steps} if self.kind.prioritized else {},
            self.oracle.max_priority,
            self.beta,
            (self.pushed, self.sampled, self.draws),
        )

    def difference(self, found: Found) -> str:
        expected = self.expected()
        for name in ("rows", "marks", "max_priority", "beta", "counters"):
            got, want = getattr(found, name), getattr(expected, name)
            if got != want:
                if name == "rows":
                    got, want = (f"{list(x)}, {hash(tuple(x.values()))}" for x in (got, want))
                return f"{name}: found {got}, expected {want}"
        for number, value in expected.priorities.items():
            allowed = (value, self.updating.get(number, value))
            if not any(np.isclose(found.priorities[number], a, rtol=1e-5) for a in allowed):
                return f"priority {number}: found {found.priorities[number]}, expected {allowed}"
        if found.drawn is not None and self.exact:
            drawn = self._drawn_without_a_crash()
            if not np.array_equal(found.drawn, drawn):
                return f"drawn: found {found.drawn}, expected {drawn}"
        return ""

    def settle(self, found: Found) -> None:
        for number, new in self.updating.items():
            step = self.oracle.step(number)
            seen = found.priorities[number]
            if abs(new - seen) < abs(step.priority - seen):
                step.priority = new
        self.exact = self.exact and not self.updating
        self.updating = {}
        if found.drawn is not None and len(found.drawn):
            self.events.append(("draw", len(found.drawn)))
            self.sampled += len(found.drawn)
            self.draws += 1

    def _drawn_without_a_crash(self) -> Any:
        """The next batch of a buffer that nobody kills."""
        shared = "/dev/shm" if Path("/dev/shm").is_dir() else None
        with (
            tempfile.TemporaryDirectory(dir=shared) as folder,
            self.kind.make(Path(folder) / "buffer") as buffer,
        ):
            for name, *arguments in self.events:
                if name == "push":
                    row, env, priority = arguments
                    push(buffer, row, env, priority)
                elif name == "draw":
                    buffer.sample(arguments[0])
                else:
                    getattr(buffer, name)(*arguments)
            return draw(buffer)


def push(
    buffer: MmapReplayBuffer, row: dict[str, Nest], env: int = 0, priority: float | None = None
) -> None:
    """Push a step."""
    extra: dict[str, Any] = {} if priority is None else {"priority": priority}
    if buffer.n_envs is not None:
        extra["stream"] = env
    buffer.push(**row, **extra)


def draw(buffer: MmapReplayBuffer) -> Any:
    """The ids of the next batch; of an empty buffer none."""
    count = min(DRAWN, len(buffer))
    return buffer.sample(count, indices=True)["indices"] if count else np.empty(0)


def row_bytes(row: dict[str, Nest]) -> bytes:
    """All of a step."""
    return b"".join(np.ascontiguousarray(value).tobytes() for value in row.values())


def look(buffer: MmapReplayBuffer, kind: Kind, *, drawing: bool) -> Found:
    """The content of a buffer."""
    engine = buffer._engine
    ids = buffer.indices()
    batch = buffer.gather(ids)
    names = {"action": "actions", "reward": "rewards"}
    columns: dict[str, Any] = {n: batch[names.get(n, n)] for n in buffer.schema.fields}
    marks, leaves = {}, {}
    if kind.n_envs and len(ids):
        windows = buffer.gather(ids, view=Sequence(2, pad=True))
        follows = windows["mask"][:, 1].tolist()
        marks = dict(
            zip(
                ids.tolist(),
                zip(windows["is_first"][:, 0].tolist(), follows, strict=True),
                strict=True,
            )
        )
    if kind.prioritized:
        saved = engine.save_priorities()["leaves"]
        for number in ids.tolist():
            seq, stream = divmod(number, kind.n_envs or 1)
            slot = stream * engine.slots_per_stream + seq % engine.slots_per_stream
            leaves[number] = float(saved[slot]) ** (1 / ALPHA)
    pushed, sampled, _, _, draws = engine.counters()
    return Found(
        {n: row_bytes({c: v[i] for c, v in columns.items()}) for i, n in enumerate(ids.tolist())},
        marks,
        leaves,
        buffer.max_priority if kind.prioritized else 1.0,
        buffer.beta if kind.prioritized else 0.4,
        (pushed, sampled, draws),
        draw(buffer) if drawing else None,
    )
