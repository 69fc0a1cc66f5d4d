"""Environments of actors that fail; other processes import them, so this imports little."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from typing import Any

import gymnasium as gym
import numpy as np

from tests.envs import resumable


class Failing(gym.Wrapper[Any, Any, Any, Any]):
    """Raises in a step of its own choice."""

    def __init__(self, in_step: int) -> None:
        super().__init__(resumable())
        self.steps, self.in_step = 0, in_step

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == self.in_step:
            raise RuntimeError("the pole broke")
        return self.env.step(action)

    def get_state(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def set_state(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]


class Infinite(Failing):
    """Gives a reward that is not finite in a step of its own choice."""

    def step(self, action: Any) -> Any:
        self.steps += 1
        obs, reward, *rest = self.env.step(action)
        return obs, np.nan if self.steps == self.in_step else reward, *rest


class Slow(gym.Wrapper[Any, Any, Any, Any]):
    """Takes its time."""

    def __init__(self, seconds: float = 0.02) -> None:
        super().__init__(resumable())
        self.seconds = seconds

    def step(self, action: Any) -> Any:
        time.sleep(self.seconds)
        return self.env.step(action)


def made_here_alone(learner: int) -> Any:
    """An environment that is made in one process, and never in others."""
    return resumable() if os.getpid() == learner else never_made()


def never_made() -> Any:
    time.sleep(100_000)


class Marked(gym.Env[Any, Any]):
    """Observes its process and how many steps it has taken there, without an end."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self) -> None:
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.seen(), 1.0, False, False, {}

    def seen(self) -> Any:
        return np.array([os.getpid() % 2**20, self.steps], np.float32)


RELEASE = threading.Event()
"""Lets environments of this process go on that hang."""


class Hanging(Failing):
    """Does not come back from a step of its own choice, whether or not other threads may run."""

    def __init__(self, in_step: int, alone: bool = False) -> None:
        super().__init__(in_step)
        self.alone = alone

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == self.in_step:
            if self.alone:  # a function that is called so keeps the interpreter to itself
                ctypes.PyDLL(None).sleep(100_000)
            RELEASE.wait(100_000)
        return self.env.step(action)
