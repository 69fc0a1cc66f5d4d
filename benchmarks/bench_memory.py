"""Resident memory per transition, each contender in a fresh process of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import data
import numpy as np
import peers
from data import ACT_DIM, MILLION, OBS_DIM, TRANSITION_BYTES, Transitions
from harness import OURS, AtMost, Result, collect

STACK = (4, 84, 84)
EPISODE = 1000
PLAIN_LIMIT = round(1.03 * TRANSITION_BYTES, 1)
PRIORITIZED_LIMIT = round(1.08 * TRANSITION_BYTES, 1)
STREAM_LIMIT = 102.0


def rows() -> Iterator[Result]:
    yield from resident_rows()
    yield from our_own_count()


def resident_rows() -> Iterator[Result]:
    yield collect(
        "memory per transition",
        "B",
        {
            OURS: fresh(ours_plain),
            "rlox": fresh(rlox_plain),
            "SB3": fresh(sb3_plain),
            "cpprb": fresh(cpprb_plain),
        },
        [AtMost(PLAIN_LIMIT, "B")],
        note=f"the transition itself is {TRANSITION_BYTES} B",
    )
    yield collect(
        "memory per prioritized transition",
        "B",
        {
            OURS: fresh(ours_prioritized),
            "rlox": fresh(rlox_prioritized),
            "cpprb": fresh(cpprb_prioritized),
        },
        [AtMost(PRIORITIZED_LIMIT, "B")],
    )
    yield collect(
        "memory per transition, streams of 8 environments",
        "B",
        {
            OURS: fresh(ours_streams),
            "SB3": fresh(sb3_streams),
            "cpprb": fresh(cpprb_streams),
        },
        [AtMost(STREAM_LIMIT, "B")],
        note="episodes of 1000 steps; SB3 with optimize_memory_usage, cpprb with next_of",
    )
    yield collect(
        "memory per transition, stacks of 4 x 84 x 84 bytes",
        "B",
        {
            OURS: fresh(ours_stacks),
            "rlox": fresh(rlox_stacks),
            "SB3": fresh(sb3_stacks),
            "cpprb": fresh(cpprb_stacks),
        },
        [AtMost(7200, "B")],
        note="SB3 with optimize_memory_usage, cpprb with next_of and stack_compress",
    )


def counted(make: Callable[[Any], Any], rows: Iterable[Transitions]) -> Callable[[], float]:
    """The bytes per row of a full buffer by our own stats()."""

    def count() -> float:
        import sharpwave as sw

        buffer = peers.fill(make(sw), rows)
        return buffer.stats()["bytes"] / len(buffer)

    return count


def our_own_count() -> Iterator[Result]:
    capacity = 100_000
    plain = data.transitions(capacity)
    yield collect(
        "bytes per transition in stats()",
        "B",
        {OURS: counted(lambda sw: sw.ReplayBuffer(capacity, OBS_DIM, ACT_DIM), [plain])},
        [AtMost(PLAIN_LIMIT, "B")],
    )
    yield collect(
        "bytes per prioritized transition in stats()",
        "B",
        {OURS: counted(lambda sw: sw.PrioritizedReplayBuffer(capacity, OBS_DIM, ACT_DIM), [plain])},
        [AtMost(PRIORITIZED_LIMIT, "B")],
    )
    yield collect(
        "bytes per transition in stats(), streams of 8 environments",
        "B",
        {
            OURS: counted(
                lambda sw: sw.ReplayBuffer(capacity, OBS_DIM, ACT_DIM, n_envs=8),
                data.streams(capacity, n_envs=8),
            )
        },
        [AtMost(STREAM_LIMIT, "B")],
    )


def fresh(case: Callable[[], float]) -> Callable[[], float]:
    """Start a case in a new process, where nothing that was freed before can be used again.

    Returns a function that waits for the result, so the cases of a row run at the same time.
    """
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
    future = pool.submit(case)
    pool.shutdown(wait=False)
    return future.result


def resident() -> int:
    """Bytes of this process that are in memory."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        raise ImportError("resident memory is read from /proc, which this system does not have")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def per_row(make: Callable[[int], Any], fill: Callable[[Any], object], rows: int) -> float:
    """Growth of this process per row that a full buffer holds; `fill` adds one episode."""
    fill(make(EPISODE))
    before = resident()
    buffer = make(rows)
    for _ in range(rows // EPISODE):
        fill(buffer)
    kept = len(buffer) if hasattr(buffer, "__len__") else rows
    return (resident() - before) / kept


def touch(buffer: Any, rows: int, before: int) -> float:
    """The same for a buffer of NumPy columns, whose pages only appear when they are written."""
    for column in vars(buffer).values():
        if isinstance(column, np.ndarray):
            column.fill(1)
    return (resident() - before) / rows


def episode() -> Transitions:
    """One episode of one environment."""
    return next(data.streams(EPISODE, n_envs=1))


def ours_plain() -> float:
    import sharpwave as sw

    make = partial(sw.ReplayBuffer, obs_dim=OBS_DIM, act_dim=ACT_DIM)
    columns = episode().columns()
    return per_row(make, lambda buffer: buffer.push_batch(*columns), MILLION)


def rlox_plain() -> float:
    import rlox as library

    make = partial(library.ReplayBuffer, obs_dim=OBS_DIM, act_dim=ACT_DIM)
    columns = episode().flat()
    return per_row(make, lambda buffer: buffer.push_batch(*columns), MILLION)


def sb3_plain() -> float:
    peers.sb3(EPISODE)
    before = resident()
    return touch(peers.sb3(MILLION), MILLION, before)


def cpprb_plain() -> float:
    columns = peers.cpprb_arguments(episode())
    return per_row(peers.cpprb, lambda buffer: buffer.add(**columns), MILLION)


def ours_prioritized() -> float:
    import sharpwave as sw

    make = partial(sw.PrioritizedReplayBuffer, obs_dim=OBS_DIM, act_dim=ACT_DIM)
    columns = episode().columns()
    return per_row(make, lambda buffer: buffer.push_batch(*columns), MILLION)


def rlox_prioritized() -> float:
    import rlox as library

    make = partial(library.PrioritizedReplayBuffer, obs_dim=OBS_DIM, act_dim=ACT_DIM)
    order = "obs action reward terminated truncated next_obs"
    rows = episode()
    return per_row(
        make, lambda buffer: peers.fill_rlox_one_by_one(buffer.push, rows, order), MILLION
    )


def cpprb_prioritized() -> float:
    columns = peers.cpprb_arguments(episode())
    make = partial(peers.cpprb, kind="PrioritizedReplayBuffer")
    return per_row(make, lambda buffer: buffer.add(**columns), MILLION)


def ours_streams() -> float:
    import sharpwave as sw

    parts = list(islice(data.streams(MILLION, n_envs=8), 1))
    rows = len(parts[0])
    sw.ReplayBuffer(1000, OBS_DIM, ACT_DIM, n_envs=8)
    before = resident()
    buffer = sw.ReplayBuffer(50 * rows, OBS_DIM, ACT_DIM, n_envs=8)
    for _ in range(50):
        peers.fill(buffer, parts)
    return (resident() - before) / (50 * rows)


def sb3_streams() -> float:
    options = {"optimize_memory_usage": True, "handle_timeout_termination": False}
    peers.sb3(EPISODE, n_envs=8, **options)
    before = resident()
    return touch(peers.sb3(MILLION, n_envs=8, **options), MILLION, before)


def cpprb_streams() -> float:
    columns = peers.cpprb_arguments(episode())
    make = partial(peers.cpprb, next_of="obs")
    return per_row(make, lambda buffer: buffer.add(**columns), MILLION)


def stacked_episode(axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Observations and next ones of one episode of stacked frames, the stack on `axis`."""
    frames = np.random.default_rng(0).integers(0, 256, (EPISODE + 4, 84, 84), dtype=np.uint8)
    stacks = np.lib.stride_tricks.sliding_window_view(frames, 4, axis=0)
    if axis == 0:
        stacks = np.moveaxis(stacks, -1, 1)
    return np.ascontiguousarray(stacks[:-1]), np.ascontiguousarray(stacks[1:])


def ours_stacks() -> float:
    import sharpwave as sw

    def make(capacity: int) -> Any:
        stack = sw.Field("uint8", STACK, stack=4, axis=0)
        fields = {**peers.IMAGE_FIELDS, "obs": stack, "next_obs": stack}
        return sw.ReplayBuffer(capacity, fields=fields, n_envs=1)

    obs, next_obs = stacked_episode(axis=0)
    rest = episode()
    actions = np.zeros(EPISODE, np.int64)
    columns = (obs, next_obs, actions, rest.rewards, rest.terminated, rest.truncated)
    return per_row(make, lambda buffer: buffer.push_batch(*columns), 20_000)


def rlox_stacks() -> float:
    import rlox as library

    make = partial(library.ReplayBuffer, obs_dim=int(np.prod(STACK)), act_dim=1)
    columns = tuple(column[:100].copy() for column in episode().columns()[3:])
    obs = np.ones(100 * int(np.prod(STACK)), np.float32)
    flags = tuple(column.view(np.uint8) for column in columns[1:])
    actions = np.ones(100, np.float32)

    def push_thousand(buffer: Any) -> None:
        for _ in range(10):
            buffer.push_batch(obs, obs, actions, columns[0], *flags)

    return per_row(make, push_thousand, 2000)


def sb3_stacks() -> float:
    from gymnasium.spaces import Box, Discrete
    from stable_baselines3.common.buffers import ReplayBuffer

    def make(capacity: int) -> Any:
        return ReplayBuffer(
            capacity,
            Box(0, 255, STACK, np.uint8),
            Discrete(6),
            device="cpu",
            optimize_memory_usage=True,
            handle_timeout_termination=False,
        )

    make(10)
    before = resident()
    return touch(make(5000), 5000, before)


def cpprb_stacks() -> float:
    obs, next_obs = stacked_episode(axis=-1)
    actions = np.zeros(EPISODE, np.int64)
    columns = peers.cpprb_arguments(episode())
    columns |= {"obs": obs, "next_obs": next_obs, "act": actions}
    make = partial(peers.cpprb, image=True, next_of="obs", stack_compress="obs")
    return per_row(make, lambda buffer: buffer.add(**columns), 20_000)
