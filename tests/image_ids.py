"""An environment of images by id, for actors that are told nothing but ids."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class Images(gym.Env[Any, Any]):
    """Shows noise and a bright row, whose half pays; episodes end by chance."""

    observation_space = gym.spaces.Box(0, 255, (36, 36, 1), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, **_: Any) -> None:
        self.row = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self.shown(), {}

    def step(self, action: Any) -> Any:
        paid = float(action == (self.row < 18))
        return self.shown(), paid, self.np_random.random() < 0.1, False, {}

    def shown(self) -> Any:
        image = self.np_random.integers(0, 64, (36, 36, 1), np.uint8)
        self.row = int(self.np_random.integers(36))
        image[self.row] = 255
        return image


gym.register("Images-v0", entry_point=Images)
