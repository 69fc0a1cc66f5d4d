"""Made-up experience: plain transitions, images, and continuous streams of several environments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

OBS_DIM = 17
ACT_DIM = 6
TRANSITION_BYTES = 4 * (2 * OBS_DIM + ACT_DIM + 1) + 2
IMAGE = (84, 84, 4)
MILLION = 1_000_000


@dataclass(frozen=True)
class Transitions:
    """Rows of (obs, next_obs, action, reward, terminated, truncated)."""

    obs: np.ndarray
    next_obs: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray

    def __len__(self) -> int:
        return len(self.rewards)

    def columns(self) -> tuple[np.ndarray, ...]:
        """The six arrays in the order of `push_batch`."""
        return (
            self.obs,
            self.next_obs,
            self.actions,
            self.rewards,
            self.terminated,
            self.truncated,
        )

    def flat(self) -> tuple[np.ndarray, ...]:
        """The same without a second axis, flags as uint8: what rlox takes."""
        return (
            self.obs.reshape(-1),
            self.next_obs.reshape(-1),
            self.actions.reshape(-1),
            self.rewards,
            self.terminated.view(np.uint8),
            self.truncated.view(np.uint8),
        )

    def dones(self) -> np.ndarray:
        """True where an episode ended at a row, for whatever reason."""
        return self.terminated | self.truncated


@lru_cache(maxsize=1)
def transitions(rows: int, seed: int = 0) -> Transitions:
    """Independent rows with obs 17 and action 6, float32; for reading only."""
    rng = np.random.default_rng(seed)
    return Transitions(
        rng.standard_normal((rows, OBS_DIM), dtype=np.float32),
        rng.standard_normal((rows, OBS_DIM), dtype=np.float32),
        rng.standard_normal((rows, ACT_DIM), dtype=np.float32),
        rng.standard_normal(rows, dtype=np.float32),
        rng.random(rows) < 0.01,
        rng.random(rows) < 0.001,
    )


def images(rows: int, seed: int = 0) -> Transitions:
    """Independent rows with observations of 84x84x4 bytes and one discrete action."""
    rng = np.random.default_rng(seed)
    return Transitions(
        rng.integers(0, 256, (rows, *IMAGE), dtype=np.uint8),
        rng.integers(0, 256, (rows, *IMAGE), dtype=np.uint8),
        rng.integers(0, 6, rows),
        rng.standard_normal(rows, dtype=np.float32),
        rng.random(rows) < 0.01,
        rng.random(rows) < 0.001,
    )


def streams(rows: int, n_envs: int = 8, episode: int = 1000) -> Iterator[Transitions]:
    """Chunks of time-major rows of `n_envs` environments, `rows` in all.

    next_obs of a row is obs of the same environment's next row. Environments are staggered, and
    each truncates its episodes after `episode` steps.
    """
    rng = np.random.default_rng(0)
    chunk = 2500
    steps = rows // n_envs
    last = rng.standard_normal((1, n_envs, OBS_DIM), dtype=np.float32)
    age = np.arange(n_envs) * (episode // n_envs)
    for start in range(0, steps, chunk):
        n = min(chunk, steps - start)
        path = np.concatenate([last, rng.standard_normal((n, n_envs, OBS_DIM), dtype=np.float32)])
        last = path[-1:]
        time = np.arange(start, start + n)[:, None]
        yield Transitions(
            path[:-1].reshape(-1, OBS_DIM),
            path[1:].reshape(-1, OBS_DIM),
            rng.standard_normal((n * n_envs, ACT_DIM), dtype=np.float32),
            rng.standard_normal(n * n_envs, dtype=np.float32),
            np.zeros(n * n_envs, dtype=bool),
            ((time + age + 1) % episode == 0).reshape(-1),
        )
