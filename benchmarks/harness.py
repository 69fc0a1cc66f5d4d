"""Time one operation of several libraries beside each other, and judge it against its targets.

A row names an operation and its contenders. All contenders of a row run in the same process: every
round times one short chunk of each, in a random order, so that a busy machine slows all of them
alike. Medians and minima over the rounds are kept, and a target is met when both say so.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any, TypeVar

OURS = "sharpwave"
FLOOR = "floor"
NOISE = 0.93
FLOOR_ROOM = 1.1

Operation = Callable[[], object]
Builder = Callable[[], Operation]
T = TypeVar("T")


@dataclass(frozen=True)
class Pace:
    """The length of a measurement."""

    chunk_s: float
    """Shortest time of one chunk."""
    row_s: float
    """Time spent on all rounds of one row."""
    min_rounds: int
    max_rounds: int


FULL = Pace(chunk_s=2e-3, row_s=1.6, min_rounds=9, max_rounds=300)
QUICK = Pace(chunk_s=1e-3, row_s=0.2, min_rounds=5, max_rounds=100)


@dataclass(frozen=True)
class Measurement:
    """One contender's value: time per operation in seconds, or another unit of the row."""

    median: float
    minimum: float
    rounds: int = 1

    @staticmethod
    def of(values: Sequence[float]) -> Measurement:
        """The measurements of some rounds."""
        return Measurement(statistics.median(values), min(values), len(values))


@dataclass(frozen=True)
class Ratio:
    """Ours is at least `at_least` times as fast as `peer` ("best": the fastest peer of the row).

    Both the medians and the minima have to say so. Where the floor leaves no room, being near the
    floor is enough.
    """

    peer: str
    at_least: float

    def __str__(self) -> str:
        return f">= {self.at_least:g}x {self.peer}"

    def judge(self, result: Result) -> Verdict | None:
        """The achieved ratio; None where the peer was not measured."""
        ours = result.measured.get(OURS)
        peer = result.best_peer() if self.peer == "best" else result.measured.get(self.peer)
        if ours is None or peer is None:
            return None
        achieved = min(peer.median / ours.median, peer.minimum / ours.minimum)
        needed = NOISE if self.at_least == 1.0 else self.at_least
        floor = result.measured.get(FLOOR)
        at_floor = floor is not None and ours.median <= FLOOR_ROOM * floor.median
        if achieved >= needed or not at_floor:
            return Verdict(achieved >= needed, f"{achieved:.2f}x {self.peer}")
        return Verdict(True, f"{achieved:.2f}x {self.peer}, at the floor")


@dataclass(frozen=True)
class AtMost:
    """Our value, in the unit of the row, is at most `limit`."""

    limit: float
    unit: str = ""

    def __str__(self) -> str:
        return f"<= {self.limit:g} {self.unit}".strip()

    def judge(self, result: Result) -> Verdict | None:
        """True if our value stays below the limit."""
        ours = result.measured.get(OURS)
        if ours is None:
            return None
        return Verdict(ours.median <= self.limit, f"{ours.median:.4g} {self.unit}".strip())


@dataclass(frozen=True)
class NearFloor:
    """Ours takes at most `limit` times as long as the floor, by the medians."""

    limit: float

    def __str__(self) -> str:
        return f"<= {self.limit:g}x {FLOOR}"

    def judge(self, result: Result) -> Verdict | None:
        """The achieved ratio; None where the floor was not measured."""
        ours, floor = result.measured.get(OURS), result.measured.get(FLOOR)
        if ours is None or floor is None:
            return None
        ratio = ours.median / floor.median
        return Verdict(ratio <= self.limit, f"{ratio:.2f}x {FLOOR}")


@dataclass(frozen=True)
class AtLeast:
    """Our value, in the unit of the row, is at least `limit`."""

    limit: float
    unit: str = ""

    def __str__(self) -> str:
        return f">= {self.limit:g}{self.unit}"

    def judge(self, result: Result) -> Verdict | None:
        """True if our value reaches the limit."""
        ours = result.measured.get(OURS)
        if ours is None:
            return None
        return Verdict(ours.median >= self.limit, f"{ours.median:.2f}{self.unit}")


Target = Ratio | AtMost | NearFloor | AtLeast


@dataclass(frozen=True)
class Verdict:
    """True if a target is met, and the value achieved in its terms."""

    met: bool
    achieved: str


@dataclass
class Row:
    """An operation still to be timed.

    `contenders` maps a name to a function that prepares the work and returns the operation itself.
    Return `functools.partial(function, *arguments)` for operations under a microsecond: the timing
    loop then calls the function directly. An operation that cannot be prepared (the library or the
    function is not there) is left out, and the result says why.
    """

    operation: str
    contenders: dict[str, Builder]
    targets: Sequence[Target] = ()
    ops_per_call: int = 1
    note: str = ""
    patience: int = 1
    """Factor of the usual number of rounds, where operations are long."""
    derive: Callable[[Result], Result] | None = None
    """Turns the times into what the row is about, where that is not a time."""
    clock: Callable[[], float] = time.perf_counter
    """The clock; `time.process_time` counts the work of one core, whatever else runs."""


@dataclass
class Result:
    """The measurements of one row. Times are in seconds per operation."""

    operation: str
    measured: dict[str, Measurement] = field(default_factory=dict)
    targets: Sequence[Target] = ()
    unit: str = "s"
    note: str = ""
    skipped: dict[str, str] = field(default_factory=dict)

    def best_peer(self) -> Measurement | None:
        """The fastest contender that is neither ours nor the floor."""
        peers = [m for name, m in self.measured.items() if name not in (OURS, FLOOR)]
        return min(peers, key=lambda m: m.median, default=None)

    def to_json(self, area: str) -> dict[str, Any]:
        """Plain data, with the ratios and verdicts worked out."""
        ours = self.measured.get(OURS)
        contenders = {}
        for name, m in self.measured.items():
            entry: dict[str, Any] = {"median": m.median, "min": m.minimum, "rounds": m.rounds}
            if ours is not None and name != OURS and ours.median > 0 and ours.minimum > 0:
                entry["ratio"] = m.median / ours.median
                entry["ratio_of_minima"] = m.minimum / ours.minimum
            contenders[name] = entry
        targets = []
        for target in self.targets:
            verdict = target.judge(self)
            targets.append(
                {
                    "text": str(target),
                    "met": None if verdict is None else verdict.met,
                    "achieved": None if verdict is None else verdict.achieved,
                }
            )
        return {
            "area": area,
            "operation": self.operation,
            "unit": self.unit,
            "contenders": contenders,
            "targets": targets,
            "note": self.note,
            "skipped": self.skipped,
        }


def measure(row: Row, pace: Pace) -> Result:
    """Prepare the contenders of a row, then time them round by round."""
    operations, skipped = _prepare(row.contenders)
    chunks = {name: _calibrate(one, pace.chunk_s, row.clock) for name, one in operations.items()}
    round_s = sum(seconds for _, seconds in chunks.values())
    rounds = min(pace.max_rounds, max(pace.min_rounds, round(pace.row_s / max(round_s, 1e-9))))
    rounds *= row.patience

    def time_chunk(name: str) -> float:
        count, _ = chunks[name]
        return _time(operations[name], count, row.clock) / (count * row.ops_per_call)

    times = _interleaved({name: partial(time_chunk, name) for name in operations}, rounds)
    measured = {name: Measurement.of(values) for name, values in times.items()}
    result = Result(row.operation, measured, row.targets, note=row.note, skipped=skipped)
    return row.derive(result) if row.derive else result


def collect(
    operation: str,
    unit: str,
    cases: dict[str, Callable[[], float]],
    targets: Sequence[Target] = (),
    note: str = "",
    rounds: int = 1,
) -> Result:
    """A row of values that each case measures by itself, once or in some rounds."""
    result = Result(operation, {}, targets, unit, note)
    first, result.skipped = _attempt(cases)
    others = _interleaved({name: cases[name] for name in first}, rounds - 1)
    result.measured = {
        name: Measurement.of([value, *others[name]]) for name, value in first.items()
    }
    return result


def run(rows: Iterator[Row | Result], pace: Pace) -> Iterator[Result]:
    """Measure rows as they come, so that an area can free what its next rows do not need."""
    for row in rows:
        yield row if isinstance(row, Result) else measure(row, pace)


def _interleaved(cases: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """The results of all cases in each round, in a random order."""
    values: dict[str, list[float]] = {name: [] for name in cases}
    order = list(cases)
    shuffle = random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            values[name].append(cases[name]())
    return values


def _prepare(builders: dict[str, Builder]) -> tuple[dict[str, Operation], dict[str, str]]:
    """Build every contender and run it once."""

    def build_and_run(build: Builder) -> Operation:
        operation = build()
        operation()
        return operation

    return _attempt({name: partial(build_and_run, build) for name, build in builders.items()})


def _attempt(cases: dict[str, Callable[[], T]]) -> tuple[dict[str, T], dict[str, str]]:
    """The results of all cases; one that fails is left out, with the reason."""
    values, reasons = {}, {}
    for name, case in cases.items():
        try:
            values[name] = case()
        except Exception as error:  # noqa: PERF203 a contender that fails must not end the run
            reasons[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return values, reasons


def _calibrate(
    operation: Operation, chunk_s: float, clock: Callable[[], float]
) -> tuple[int, float]:
    """The number of operations that fill a chunk, and its time; warms up on the way."""
    count = 1
    while True:
        seconds = _time(operation, count, clock)
        if seconds >= chunk_s:
            return count, seconds
        count = max(count + 1, min(10 * count, int(1.2 * count * chunk_s / max(seconds, 1e-9))))


def _time(operation: Operation, count: int, clock: Callable[[], float]) -> float:
    """Seconds for `count` operations, without the garbage collector's pauses."""
    function: Callable[..., object] = operation
    arguments: tuple[Any, ...] = ()
    if isinstance(operation, partial) and not operation.keywords:
        function, arguments = operation.func, operation.args
    gc.disable()
    try:
        start = clock()
        for _ in repeat(None, count):
            function(*arguments)
        return clock() - start
    finally:
        gc.enable()
