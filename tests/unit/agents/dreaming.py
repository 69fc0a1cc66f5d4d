"""Small agents with a world model, and an environment whose observations are images."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import sharpwave as sw

TINY: dict[str, Any] = {
    "deter": 16,
    "hidden": 8,
    "latents": 3,
    "classes": 4,
    "units": 8,
    "blocks": 4,
    "depth": 2,
    "batch_size": 4,
    "sequence_length": 8,
    "imag_last": 4,
    "imagination": 3,
    "train_ratio": 8,
    "log_interval": 20,
    "seed": 0,
}


class Lamp(gymnasium.Env[Any, Any]):
    """A picture that grows brighter with every step, and a number that says so; 6 steps."""

    def __init__(self, nested: bool = False) -> None:
        image = spaces.Box(0, 255, (64, 64, 3), np.uint8)
        level = spaces.Box(0, 10, (1,), np.float32)
        self.observation_space: Any = image
        if nested:
            self.observation_space = spaces.Dict({"image": image, "level": level})
        self.action_space = spaces.Discrete(2, start=3)
        self._level = 0

    def _seen(self) -> Any:
        image = np.full((64, 64, 3), 40 * self._level, np.uint8)
        if isinstance(self.observation_space, spaces.Dict):
            return {"image": image, "level": np.array([self._level], np.float32)}
        return image

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._level = 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        assert action in (3, 4)
        self._level += 1
        return self._seen(), float(self._level), self._level == 6, False, {}


class Ring(gymnasium.Env[Any, Any]):
    """Five places in a ring; an action goes one or two places on; 20 steps."""

    observation_space: Any = spaces.Discrete(5)
    action_space: Any = spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._place = self._time = 0
        return 0, {}

    def step(self, action: Any) -> Any:
        self._place = int(self._place + 1 + action) % 5
        self._time += 1
        return self._place, float(self._place), False, self._time == 20, {}


def dreamer(env: Any = "CartPole-v1", **options: Any) -> Any:
    return sw.DreamerV3(env, **{**TINY, **options})


def weights(agent: Any) -> Any:
    """Of all networks, in one row."""
    parts = [agent.learner.policy, agent.learner.slow_critic]
    return np.concatenate([p.detach().numpy().ravel() for x in parts for p in x.parameters()])
