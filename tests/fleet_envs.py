"""Environments of actors that fail; other processes import them, so this imports little."""

from __future__ import annotations

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
