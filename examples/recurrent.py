"""Memory where observations do not say enough.

    python examples/recurrent.py [STEPS]

CartPole shows positions and velocities. Without the velocities one observation does not tell which
way the pole falls; two of them do. A recurrent policy remembers, one without memory cannot.
"""

import sys
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

import sharpwave as sw

POSITIONS = [0, 2]


class PositionsOnly(gym.ObservationWrapper[Any, Any, Any]):
    """CartPole without velocities."""

    def __init__(self) -> None:
        super().__init__(gym.make("CartPole-v1"))
        bounds = self.env.observation_space
        assert isinstance(bounds, spaces.Box)
        self.observation_space = spaces.Box(bounds.low[POSITIONS], bounds.high[POSITIONS])

    def observation(self, observation: Any) -> Any:
        """The positions [2]."""
        return np.asarray(observation)[POSITIONS]


def main(steps: int = 40_000) -> None:
    settings: dict[str, Any] = {
        "seed": 0,
        "n_steps": 128,
        "batch_size": 256,
        "n_epochs": 10,
        "learning_rate": 1e-3,
        "gamma": 0.98,
        "gae_lambda": 0.9,
        "ent_coef": 0.0,
        "recurrent_size": 32,
    }
    for memory in (None, "gru"):
        ppo = sw.PPO(PositionsOnly, recurrent=memory, **settings)
        ppo.train(steps, callbacks=[sw.ProgressCallback()])
        print(f"{memory or 'no memory':>9}: {ppo.evaluate(10)}")
        ppo.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
