"""One iteration of training as a debugger would show it: files visited and hops of acting."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import gymnasium as gym
import numpy as np

import sharpwave as sw
from tools.source_measures import PACKAGE, parsed

ACTING = re.compile(r"^_?(native_)?(act|explore|predict|choose)(_|$)")
NETWORKS = ("learners", "algorithms", "agents")
"""Rooms beside nn whose functions may call native networks."""
BEGIN = 4
"""Updates before the one that is watched."""


class Points(gym.Env[Any, Any]):
    """Points on a line, pushed left and right, in episodes of five steps.

    Args:
        continuous: Actions are numbers; otherwise they are left and right.
    """

    def __init__(self, continuous: bool = False) -> None:
        self.observation_space = gym.spaces.Box(-10.0, 10.0, (3,), np.float32)
        if continuous:
            self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        else:
            self.action_space = gym.spaces.Discrete(2)
        self.age = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed, options=options)
        self.age = 0
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step."""
        self.age += 1
        push = float(np.sum(action))
        obs = np.full(3, push, np.float32)
        return obs, -abs(push), False, self.age == 5, {}


@dataclass(frozen=True)
class Walk:
    """Files and functions that one iteration of training visits.

    Attributes:
        files: Files of the library, in order of the first visit.
        changes: Number of times that the way goes from one file to another, by a call or a return.
        calls: Functions of the library called.
        hops: Nested calls from the loop down to the networks when it acts, the longest such way.
    """

    files: tuple[str, ...]
    changes: int
    calls: int
    hops: tuple[str, ...]


class Tracer(sw.Callback):
    """Watches the calls between one update and the next, once a run goes its usual way."""

    def __init__(self) -> None:
        self.updates = 0
        self.visited: list[str] = []
        self.calls = 0
        self.stepping: list[list[FrameType]] = []
        self.acting: list[list[FrameType]] = []

    def on_train_batch(self) -> None:
        """Begin at the end of one update and stop at the end of the next."""
        self.updates += 1
        if self.updates == BEGIN:
            sys.setprofile(self.see)
        elif self.updates == BEGIN + 1:
            sys.setprofile(None)

    def see(self, frame: FrameType, event: str, _: Any) -> None:
        """Take note of a call or a return."""
        if event == "call":
            self._see_call(frame)
        elif event == "return" and _is_ours(frame):
            caller = next(_ours(frame.f_back), None)
            if caller is not None:
                self.visited.append(_name(caller))

    def _see_call(self, frame: FrameType) -> None:
        if frame.f_code is Points.step.__code__:
            self.stepping.append(list(_ours(frame))[::-1])
        elif _is_ours(frame):
            self.calls += 1
            self.visited.append(_name(frame))
            if _is_network(frame):
                self.acting.append(list(_ours(frame))[::-1])

    def result(self) -> Walk:
        """The measures of what was seen."""
        pairs = zip(self.visited, self.visited[1:], strict=False)
        return Walk(
            files=tuple(dict.fromkeys(self.visited)),
            changes=sum(before != after for before, after in pairs),
            calls=self.calls,
            hops=max(self._ways(), key=len, default=()),
        )

    def _ways(self) -> Iterator[tuple[str, ...]]:
        """The ways from the loop to a network: the loop is what both acts and steps."""
        for acting in self.acting:
            for stepping in self.stepping:
                shared = sum(a is b for a, b in zip(acting, stepping, strict=False))
                way = acting[shared:]
                if not any(ACTING.match(frame.f_code.co_name) for frame in way):
                    continue
                # A module's own layers are the network, not the way to it.
                inside = [index for index, frame in enumerate(way) if _room(frame) == "nn"]
                way = way[: inside[0] + 1] if inside else way
                yield tuple(f"{_name(frame)}:{frame.f_code.co_name}" for frame in way)


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(str(PACKAGE))


def _ours(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of the library, from the innermost out."""
    while frame is not None:
        if _is_ours(frame):
            yield frame
        frame = frame.f_back


def _name(frame: FrameType) -> str:
    return Path(frame.f_code.co_filename).relative_to(PACKAGE).as_posix()


def _room(frame: FrameType) -> str:
    return _name(frame).partition("/")[0]


def _is_network(frame: FrameType) -> bool:
    """Return whether the function is one of `nn`, or in a file that calls native networks."""
    room = _room(frame)
    return room == "nn" or (room in NETWORKS and _calls_native(Path(frame.f_code.co_filename)))


def _calls_native(path: Path) -> bool:
    return any(
        isinstance(node, ast.ImportFrom)
        and (
            node.module == "sharpwave._native"
            or (node.module == "sharpwave" and any(name.name == "_native" for name in node.names))
        )
        for node in ast.walk(parsed(path))
    )


SETTINGS: dict[str, dict[str, Any]] = {
    "PPO": {"n_envs": 2, "n_steps": 4, "n_epochs": 1, "batch_size": 8},
    "SAC": {"n_envs": 1, "learning_starts": 2, "batch_size": 2, "log_interval": 1},
}
"""An iteration of PPO is four steps and one of the gradient, one of SAC a step of each."""
ENV_IDS = {"PPO": "CartPole-v1", "SAC": "Pendulum-v1"}


def iteration(algorithm: str, backend: str) -> Walk:
    """One iteration in an environment that users name."""
    return _watched(algorithm, backend, ENV_IDS[algorithm])


def acting_hops(algorithm: str, backend: str) -> tuple[str, ...]:
    """The functions between the loop and the networks, in an environment of Python's.

    Native environments and networks are collected from without any.
    """
    env = partial(Points, continuous=algorithm == "SAC")
    return _watched(algorithm, backend, env).hops


def _watched(algorithm: str, backend: str, env: Any) -> Walk:
    tracer = Tracer()
    make = getattr(sw, algorithm)
    agent = make(env, backend=backend, device="cpu", seed=0, **SETTINGS[algorithm])
    try:
        agent.train(64, callbacks=tracer)
    finally:
        sys.setprofile(None)
    if not tracer.visited:
        raise RuntimeError(f"{algorithm} made {tracer.updates} updates, expected over {BEGIN}")
    return tracer.result()
