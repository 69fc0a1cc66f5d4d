"""The table of fleets, each of which keeps the same contract."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import sharpwave as sw
from sharpwave.distributed import Fleet, Unroll

OPTIONS: dict[str, Any] = {"n_envs": 4, "n_steps": 8, "hidden": (8,), "seed": 1}


class Row(NamedTuple):
    """A kind of fleet: how an agent gets one, and what is left of it."""

    agent: Callable[..., AbstractContextManager[Any]]
    """An agent in a world, with options; closed at the end."""
    left: Callable[[], list[str]]
    """Names of threads and processes of actors that are there."""


def threads_left() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("sharpwave actor")]


def processes_left() -> list[str]:
    """The command lines of the processes of actors that this process started."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
                line = (folder / "cmdline").read_bytes().decode()
            except OSError:  # it has ended meanwhile
                continue
            if int(parent) == os.getpid() and "process_actor" in line:
                found.append(folder.name)
    return found


def kind_of(actors: str) -> Callable[..., AbstractContextManager[Any]]:
    @contextmanager
    def agent(world: Any = "CartPole-v1", **options: Any) -> Iterator[Any]:
        made = sw.IMPALA(world, actors=actors, **{**OPTIONS, **options})
        try:
            yield made
        finally:
            made.close()

    return agent


FLEETS = {
    "threads": Row(kind_of("threads"), threads_left),
    "processes": Row(kind_of("processes"), processes_left),
}


def received(fleet: Fleet) -> Unroll:
    unroll = fleet.receive(30.0)
    assert unroll is not None
    return unroll


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
