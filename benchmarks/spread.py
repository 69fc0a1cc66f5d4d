"""simple_spread_v3 of mpe2 1.1 in NumPy, many at once: what there is without native code."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class NumpySpread:
    """Environments of N agents with discrete actions; those that end begin anew.

    Args:
        num_envs: Number of environments.
        n_agents: Agents of each, and landmarks.
        seed: Of the first states.
    """

    def __init__(self, num_envs: int, n_agents: int = 3, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.shape = (num_envs, n_agents, 2)
        self.others = np.array([[j for j in range(n_agents) if j != i] for i in range(n_agents)])
        self.pushes = 5.0 * np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]])
        self.begin()

    def begin(self) -> None:
        """New episodes everywhere: all are as long."""
        self.time = 0
        self.places = self.rng.uniform(-1, 1, self.shape)
        self.landmarks = self.rng.uniform(-1, 1, self.shape)
        self.speeds = np.zeros(self.shape)

    def step(self, actions: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.float32], Floats, bool]:
        """Observations [N, G, size], rewards [N, G] and whether the episodes ended."""
        apart = self.places[:, :, None] - self.places[:, self.others]
        distance = np.sqrt(np.square(apart).sum(axis=-1, keepdims=True))
        depth = np.logaddexp(0, -(distance - 0.3) / 1e-3) * 1e-3
        forces = self.pushes[actions] + (100 * apart / distance * depth).sum(axis=2)
        self.places = self.places + self.speeds * 0.1
        self.speeds = self.speeds * 0.75 + forces * 0.1
        self.time += 1
        rewards = self.rewards()
        ended = self.time == 25
        if ended:
            self.begin()
        return self.observations(), rewards, ended

    def rewards(self) -> Floats:
        """Half for landmarks, half for not touching each other."""
        to_landmarks = self.landmarks[:, :, None] - self.places[:, None]
        shared = -np.sqrt(np.square(to_landmarks).sum(axis=-1)).min(axis=2).sum(axis=1)
        apart = self.places[:, :, None] - self.places[:, self.others]
        touches = (np.sqrt(np.square(apart).sum(axis=-1)) < 0.3).sum(axis=2)
        return 0.5 * shared[:, None] - 0.5 * touches

    def observations(self) -> npt.NDArray[np.float32]:
        """Speed, place, landmarks, other agents and what they say."""
        n, g, _ = self.shape
        landmarks = (self.landmarks[:, None] - self.places[:, :, None]).reshape(n, g, -1)
        others = (self.places[:, self.others] - self.places[:, :, None]).reshape(n, g, -1)
        parts = (self.speeds, self.places, landmarks, others, np.zeros_like(others))
        return np.concatenate(parts, axis=-1).astype(np.float32)
