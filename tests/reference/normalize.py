"""Normalization of observations and rewards, from everything seen so far at every step."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.stepping import Row

Array = Any


class Normalizer:
    """Keeps all observations and all discounted returns, and never forgets."""

    def __init__(self, n_envs: int, gamma: float, clip_obs: float, clip_reward: float) -> None:
        self.gamma, self.clip_obs, self.clip_reward = gamma, clip_obs, clip_reward
        self.observations: list[Array] = []
        self.returns: list[float] = []
        self.running = [0.0] * n_envs

    def see(self, rows: list[Row]) -> None:
        """One step of every environment."""
        for i, row in enumerate(rows):
            if row.next_obs is None:
                self.observations.append(row.obs)
                continue
            self.observations.append(row.next_obs)
            if row.obs is not row.next_obs:
                self.observations.append(row.obs)
            self.running[i] = self.gamma * self.running[i] + row.reward
            self.returns.append(self.running[i])
            if row.terminated or row.truncated:
                self.running[i] = 0.0

    def obs(self, obs: Array) -> Array:
        seen = np.array(self.observations, np.float64)
        scaled = (obs - seen.mean(axis=0)) / np.sqrt(seen.var(axis=0) + 1e-8)
        return np.clip(scaled, -self.clip_obs, self.clip_obs)

    def reward(self, reward: float) -> float:
        scale = np.sqrt(np.var(self.returns) + 1e-8)
        return float(np.clip(reward / scale, -self.clip_reward, self.clip_reward))
