"""Many threads on one buffer: no torn rows, no errors, no deadlock, and draws that do not differ.

All fields of a step derive from one number, so a row made of two steps shows.
"""

from __future__ import annotations

import faulthandler
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave import (
    Field,
    Hindsight,
    NStep,
    PrioritizedReplayBuffer,
    Recent,
    ReplayBuffer,
    Sequence,
    Transition,
    Where,
    WithoutReplacement,
)

SECONDS = 0.6
DIM = 67  # more than a cache line, and no multiple of one


@pytest.fixture(autouse=True)
def _end_deadlocks() -> Iterator[None]:
    """A thread that waits with the GIL held would freeze the test; this timer needs no GIL."""
    faulthandler.dump_traceback_later(120, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def together(*loops: Callable[[], object], seconds: float = SECONDS) -> list[int]:
    """Call every function again and again in a thread of its own; how often each was called."""
    stop = threading.Event()
    errors: list[BaseException] = []
    counts = [0] * len(loops)

    def repeat(i: int) -> None:
        try:
            while not stop.is_set():
                loops[i]()
                counts[i] += 1
        except BaseException as error:
            errors.append(error)
            stop.set()

    threads = [threading.Thread(target=repeat, args=(i,), daemon=True) for i in range(len(loops))]
    for thread in threads:
        thread.start()
    stop.wait(seconds)
    stop.set()
    deadline = time.monotonic() + 60
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    if errors:
        raise errors[0]
    assert all(counts), "a thread never got its turn"
    return counts


def rows_of(numbers: Any) -> dict[str, Any]:
    n = np.asarray(numbers, np.float64)
    wide = np.repeat(n[:, None], DIM, axis=1)
    return {
        "obs": wide,
        "next_obs": wide + 1,
        "actions": -n[:, None],
        "rewards": 2 * n,
        "terminated": n % 2,
        "truncated": np.zeros(len(n)),
    }


class Pusher:
    """Pushes ever new numbers, alternately one and several."""

    def __init__(self, buffer: ReplayBuffer, first: int, stream: int | None = None) -> None:
        self._buffer = buffer
        self._number = first
        self._stream = stream

    def __call__(self) -> None:
        n = 1 + self._number % 7
        rows = rows_of(np.arange(self._number, self._number + n))
        self._number += n
        stream = {} if self._stream is None else {"stream": self._stream}
        if n == 1:
            names = {"actions": "action", "rewards": "reward"}
            self._buffer.push(**{names.get(k, k): value[0] for k, value in rows.items()}, **stream)
        else:
            streams = {key + "s": np.full(n, value) for key, value in stream.items()}
            self._buffer.push_batch(**rows, **streams)


def check_rows(batch: dict[str, Any]) -> None:
    number = batch["obs"][:, 0]
    assert (batch["obs"] == number[:, None]).all(), "torn observation"
    assert (batch["next_obs"] == number[:, None] + 1).all(), "torn next observation"
    assert (batch["actions"] == -number).all(), "torn action"
    assert (batch["rewards"] == 2 * number).all(), "torn reward"
    assert (batch["terminated"] == number % 2).all(), "torn flag"


def filled(cls: Any = ReplayBuffer, capacity: int = 512, **options: Any) -> Any:
    buffer = cls(capacity, DIM, 1, **options)
    n_envs = options.get("n_envs") or 1
    streams = {"streams": np.arange(capacity) % n_envs} if "n_envs" in options else {}
    buffer.push_batch(**rows_of(np.arange(capacity)), **streams)
    return buffer


@pytest.mark.long
def test_writers_beside_samplers_of_transitions() -> None:
    buffer = filled(capacity=4096)
    out = buffer.batch(64)

    def epoch() -> None:
        for batch in buffer.epoch(100):
            check_rows(batch)

    together(
        Pusher(buffer, 1000),
        Pusher(buffer, 2_000_000),
        lambda: check_rows(buffer.sample(64)),
        lambda: check_rows(buffer.sample(256, selector=Recent(300))),
        lambda: check_rows(buffer.sample(64, out=out)),
        lambda: check_rows(buffer.sample(16, selector=WithoutReplacement())),
        lambda: check_rows(buffer.sample(16, selector=Where(lambda b: b["terminated"] == 1))),
        epoch,
    )


@pytest.mark.long
def test_writers_beside_samplers_of_stream_rows() -> None:
    buffer = filled(n_envs=2)

    def n_step() -> None:
        batch = buffer.sample(64, view=NStep(3, gamma=1.0))
        number = batch["obs"][:, 0]
        ahead = batch["next_obs"][:, 0] - number
        # Numbers follow each other, and odd ones end an episode.
        assert ((ahead == 1) | ((ahead == 2) & (number % 2 == 0))).all()

    def windows() -> None:
        batch = buffer.sample(32, view=Sequence(3, burn_in=1, pad=True))
        there = batch["mask"]
        number = batch["obs"][..., 0]
        assert (batch["rewards"] == np.where(there, 2 * number, 0)).all()
        assert (batch["next_obs"][..., 3][there] == number[there] + 1).all()

    together(
        Pusher(buffer, 1000, stream=0),
        Pusher(buffer, 2_000_000, stream=1),
        lambda: check_rows(buffer.sample(64)),
        n_step,
        windows,
    )


@pytest.mark.long
def test_writers_beside_samplers_of_frame_stacks() -> None:
    frame = (84, 84)
    fields = {"obs": Field("uint8", (4, *frame), stack=4), "action": "int64", "reward": "float32"}
    buffer = ReplayBuffer(200, fields=fields, n_envs=1)
    number = 0

    def stack(newest: int) -> Any:
        return np.stack([np.full(frame, (newest - 3 + i) % 256, np.uint8) for i in range(4)])

    def write() -> None:
        nonlocal number
        buffer.push(stack(number), number, number % 256, next_obs=stack(number + 1), stream=0)
        number += 1

    def sample() -> None:
        batch = buffer.sample(8)
        newest = batch["actions"] % 256
        for i in range(4):
            expected = (newest - 3 + i) % 256
            assert (batch["obs"][:, i] == expected[:, None, None]).all(), "torn stack"
            assert (batch["next_obs"][:, i] == (expected[:, None, None] + 1) % 256).all()

    for _ in range(20):
        write()
    together(write, sample, sample)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["proportional", "rank"])
@pytest.mark.parametrize("n_envs", [None, 2])
def test_priorities_are_updated_beside_pushes_and_draws(kind: Any, n_envs: int | None) -> None:
    options: dict[str, Any] = {"kind": kind} if n_envs is None else {"kind": kind, "n_envs": n_envs}
    buffer = filled(PrioritizedReplayBuffer, **options)
    updated = stale = 0

    def learn() -> None:
        nonlocal updated, stale
        batch = buffer.sample(32)
        check_rows(batch)
        assert (batch["weights"] > 0).all()
        assert (batch["weights"] <= 1).all()
        time.sleep(0)
        stale += buffer.update_priorities(batch["indices"], batch["rewards"] % 7 + 0.1)
        updated += 32

    stream = None if n_envs is None else 0
    other = None if n_envs is None else 1
    together(
        Pusher(buffer, 1000, stream),
        Pusher(buffer, 2_000_000, other),
        learn,
        lambda: check_rows(buffer.sample(64)),
        lambda: buffer.update_priorities(np.arange(64), np.ones(64)),
        lambda: buffer.set_beta(0.5),
    )
    assert buffer.stats()["stale_updates"] >= stale
    assert len(buffer.indices()) == len(buffer)


@pytest.mark.long
def test_hindsight_beside_a_writer() -> None:
    space = ("float32", (2,))
    fields = {
        "obs": {"observation": space, "achieved_goal": space, "desired_goal": space},
        "action": "float32",
        "reward": "float32",
        "terminated": "bool",
        "truncated": "bool",
    }
    buffer = ReplayBuffer(64, fields=fields, n_envs=1)
    number = 0

    def observation(n: int) -> dict[str, Any]:
        return {"observation": [n, -n], "achieved_goal": [n, n], "desired_goal": [-1, -1]}

    def write() -> None:
        nonlocal number
        end = number % 10 == 9
        buffer.push(
            observation(number), number, -1.0, False, end, observation(number + 1), stream=0
        )
        number += 1

    def reward(achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return (achieved_goal == desired_goal).all(axis=1).astype(np.float32)

    view = Hindsight(reward)

    def sample() -> None:
        batch = buffer.sample(16, view=view)
        here = batch["obs"]["observation"][:, 0]
        goal = batch["obs"]["desired_goal"][:, 0]
        assert (batch["next_obs"]["observation"][:, 0] == here + 1).all(), "torn step"
        relabeled = goal != -1
        ahead = goal[relabeled] - here[relabeled]
        assert ((ahead >= 1) & (ahead <= 10)).all(), "a goal of another episode"
        expected = np.where(relabeled, goal == here + 1, -1.0)
        assert (batch["rewards"] == expected).all()

    for _ in range(64):
        write()
    together(write, sample, sample)


@pytest.mark.long
def test_saves_and_pickles_beside_writers_hold_one_moment(tmp_path: Path) -> None:
    buffer = ReplayBuffer(400, DIM, 1)
    buffer.push_batch(**rows_of(np.arange(400)))
    copies: list[ReplayBuffer] = []

    def save() -> None:
        buffer.save(tmp_path / "saved")
        copies.append(ReplayBuffer.load(tmp_path / "saved"))
        copies.append(pickle.loads(pickle.dumps(buffer)))

    counts = together(Pusher(buffer, 400), lambda: check_rows(buffer.sample(64)), save)
    assert counts[0] > 10
    for copy in copies:
        everything = copy.gather(copy.indices())
        check_rows(everything)
        # One writer pushed 0, 1, 2, ...: a moment holds 400 numbers in a row.
        first = everything["obs"][0, 0]
        assert (everything["obs"][:, 0] == first + np.arange(400)).all()
        assert copy.indices()[0] == first


@pytest.mark.long
def test_clear_beside_samplers_and_writers() -> None:
    buffer = filled(PrioritizedReplayBuffer, n_envs=2)

    def sample() -> None:
        try:
            batch = buffer.sample(8)
        except ValueError as error:  # nothing there at this moment
            refusals = "batch_size must be", "buffer is empty", "priorities must not"
            assert any(refusal in str(error) for refusal in refusals)  # noqa: PT017
        else:
            check_rows(batch)

    def clear() -> None:
        time.sleep(0.002)
        buffer.clear()

    together(Pusher(buffer, 1000, 0), Pusher(buffer, 2_000_000, 1), sample, sample, clear)
    buffer.clear()
    assert len(buffer) == 0
    assert len(buffer.indices()) == 0


@pytest.mark.long
def test_everything_at_once_on_a_tiny_buffer() -> None:
    buffer = filled(PrioritizedReplayBuffer, capacity=3)
    together(
        Pusher(buffer, 1000),
        Pusher(buffer, 2_000_000),
        lambda: check_rows(buffer.sample(3)),
        lambda: buffer.update_priorities(np.arange(3), [1, 2, 3]),
        lambda: buffer.stats(),
        lambda: buffer.indices().sum(),
        lambda: repr(buffer),
    )


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("cls", [ReplayBuffer, PrioritizedReplayBuffer])
def test_given_seeds_draw_the_same_whatever_the_threads(cls: Any, threads: int) -> None:
    buffer = filled(cls, n_envs=2)
    if cls is PrioritizedReplayBuffer:
        buffer.update_priorities(buffer.indices(), np.arange(len(buffer)) + 1.0)
    views = [None, Transition(("obs",)), NStep(3), Sequence(2, pad=True)]

    def draw(seed: int) -> bytes:
        batch = buffer.sample(64, seed, view=views[seed % len(views)], indices=True)
        return b"".join(batch[key].tobytes() for key in sorted(batch))

    alone = [draw(seed) for seed in range(100)]
    with ThreadPoolExecutor(threads) as pool:
        assert list(pool.map(draw, range(100), timeout=60)) == alone


@pytest.mark.long
def test_a_long_draw_does_not_stop_other_threads() -> None:
    """A large gather lets go of the GIL: a Python thread goes on beside it."""
    buffer = ReplayBuffer(20_000, 500, 1)
    buffer.push_batch(
        np.zeros((20_000, 500), np.float32),
        np.zeros((20_000, 500), np.float32),
        np.zeros(20_000),
        np.zeros(20_000),
        np.zeros(20_000),
        np.zeros(20_000),
    )
    out = buffer.batch(20_000)
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        ticks += 1

    together(lambda: buffer.sample(20_000, out=out), tick, seconds=0.5)
    assert ticks > 100
