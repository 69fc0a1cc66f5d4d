"""Several Python threads on one buffer: does sampling scale, and are rows whole beside a writer?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from threading import Event, Thread
from typing import Any

import data
import floor
import numpy as np
import peers
from data import ACT_DIM, MILLION, OBS_DIM
from harness import (
    FLOOR,
    OURS,
    AtLeast,
    AtMost,
    Builder,
    Measurement,
    Operation,
    Result,
    Row,
    collect,
)

BATCH = 8192
BATCHES = 16
RING = 10_000
WRITER_S = 0.5

Sampler = Callable[[int], object]


def rows() -> Iterator[Row | Result]:
    yield scaling()
    yield from beside_a_writer()


def scaling() -> Row:
    buffers = peers.Uniform(data.transitions(MILLION))
    samplers: dict[str, Sampler] = {
        OURS: lambda _: buffers.ours.sample(BATCH),
        "rlox": lambda seed: buffers.rlox.sample(BATCH, seed),
        FLOOR: lambda _: floor.load().sample(buffers.records, BATCH),
    }
    pool = ThreadPoolExecutor(2)
    contenders: dict[str, Builder] = {}
    for name, sampler in samplers.items():
        contenders[f"{name}, 1"] = partial(on_threads, sampler, 1, pool)
        contenders[f"{name}, 2"] = partial(on_threads, sampler, 2, pool)
    return Row(
        "sample 8192 of 1M on 2 threads, throughput over one thread",
        contenders,
        [AtLeast(1.8, "x")],
        ops_per_call=BATCHES,
        derive=speed_up,
    )


def on_threads(sample: Sampler, threads: int, pool: ThreadPoolExecutor) -> Operation:
    """All batches, shared out between `threads` threads."""
    rng = np.random.default_rng(threads)

    def share(first_seed: int) -> None:
        for seed in range(first_seed, first_seed + BATCHES // threads):
            sample(seed)

    def all_batches() -> None:
        first_seeds = rng.integers(1 << 40, size=threads).tolist()
        if threads == 1:
            share(first_seeds[0])
        else:
            list(pool.map(share, first_seeds))

    return all_batches


def speed_up(times: Result) -> Result:
    """Time on one thread over time on two, per contender."""
    result = Result(times.operation, {}, times.targets, unit="x", skipped=times.skipped)
    for name in (OURS, "rlox", FLOOR):
        one, two = times.measured.get(f"{name}, 1"), times.measured.get(f"{name}, 2")
        if one is not None and two is not None:
            result.measured[name] = Measurement(
                one.median / two.median, one.minimum / two.minimum, two.rounds
            )
    result.note = "time per batch on 2 threads: " + ", ".join(
        f"{name.removesuffix(', 2')} {m.median * 1e6:.0f} us"
        for name, m in times.measured.items()
        if name.endswith(", 2")
    )
    return result


@dataclass
class Beside:
    """The findings of a reader and a writer."""

    torn: int = 0
    exceptions: int = 0
    batches: int = 0
    pushes: int = 0


def beside_a_writer() -> Iterator[Result]:
    """A writer fills rows whose fields all hold one number; a reader checks that they agree."""

    def ours() -> Any:
        import sharpwave as sw

        return sw.ReplayBuffer(RING, OBS_DIM, ACT_DIM)

    def rlox() -> Any:
        import rlox as library

        return library.ReplayBuffer(RING, OBS_DIM, ACT_DIM)

    @cache
    def watch(make: Callable[[], Any]) -> Beside:
        return read_beside_writer(make())

    makers = {OURS: ours, "rlox": rlox}
    note = f"{WRITER_S} s of push_batch(64) beside sample({BATCH}) of {RING} rows"
    yield collect(
        "torn rows with a writer beside",
        "rows",
        {name: lambda m=make: watch(m).torn for name, make in makers.items()},
        [AtMost(0)],
        note,
    )
    yield collect(
        "exceptions with a writer beside",
        "exceptions",
        {name: lambda m=make: watch(m).exceptions for name, make in makers.items()},
        [AtMost(0)],
        note,
    )


def same_number(start: int, rows: int) -> tuple[np.ndarray, ...]:
    """Flat columns of rows whose fields all equal one number, as `push_batch` takes them."""
    numbers = np.arange(start, start + rows, dtype=np.float32)
    flags = (numbers % 2).astype(np.uint8)
    obs = np.repeat(numbers, OBS_DIM)
    return obs, obs.copy(), np.repeat(numbers, ACT_DIM), numbers, flags, flags.copy()


def read_beside_writer(buffer: Any) -> Beside:
    seen = Beside()
    stop = Event()
    buffer.push_batch(*same_number(0, RING))

    def write() -> None:
        while not stop.is_set():
            batch = same_number(seen.pushes % 100_000, 64)
            seen.pushes += 64
            try:
                buffer.push_batch(*batch)
            except Exception:
                seen.exceptions += 1

    writer = Thread(target=write)
    writer.start()
    end = time.perf_counter() + WRITER_S
    while time.perf_counter() < end:
        seen.batches += 1
        try:
            batch = buffer.sample(BATCH, seen.batches)
        except Exception:
            seen.exceptions += 1
        else:
            seen.torn += count_torn(batch)
    stop.set()
    writer.join()
    return seen


def count_torn(batch: dict[str, np.ndarray]) -> int:
    """Rows whose fields do not agree with their reward."""
    numbers = batch["rewards"]
    whole = np.ones(len(numbers), dtype=bool)
    for name in ("obs", "next_obs", "actions"):
        whole &= (batch[name] == numbers[:, None]).all(axis=1)
    for name in ("terminated", "truncated"):
        whole &= batch[name] == numbers % 2
    return int((~whole).sum())
