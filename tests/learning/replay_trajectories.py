"""Fifty gradient steps on batches that no environment had a part in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

import sharpwave as sw
from sharpwave.learners.replay import ReplayBatch
from sharpwave.types import Array
from tests.learning.trajectories import Trajectory

STEPS = 50
ROWS = 32


class Spaces(gym.Env[Any, Any]):
    """Says what observations and actions are, and is never stepped."""

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space: gym.Space[Any] = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Array, Any]:
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}


class ContinuousSpaces(Spaces):
    """The same with three actions at once."""

    action_space = spaces.Box(-1.0, 1.0, (3,), np.float32)


RAINBOW: dict[str, Any] = {"dueling": True, "noisy": True, "prioritized": True}

CASES: dict[str, Callable[..., Any]] = {
    "dqn": partial(sw.DQN, Spaces, target_update_freq=10),
    "dqn_dueling": partial(sw.DQN, Spaces, dueling=True, tau=0.1, loss="mse"),
    "dqn_noisy": partial(sw.DQN, Spaces, target_update_freq=10, **RAINBOW),
    "c51": partial(sw.C51, Spaces, target_update_freq=10, n_atoms=11),
    "qr_dqn": partial(sw.QRDQN, Spaces, target_update_freq=10, n_quantiles=9),
    "sac": partial(sw.SAC, ContinuousSpaces),
    "sac_gsde": partial(sw.SAC, ContinuousSpaces, use_gsde=True, prioritized=True, n_critics=3),
    "td3": partial(sw.TD3, ContinuousSpaces),
    "ddpg": partial(sw.DDPG, ContinuousSpaces, prioritized=True),
    "tqc": partial(sw.TQC, ContinuousSpaces, n_quantiles=9, top_quantiles_to_drop=1),
    "crossq": partial(sw.CrossQ, ContinuousSpaces, critic_hidden=(16, 16)),
    "discrete_sac": partial(sw.DiscreteSAC, Spaces),
}


NATIVE = ("dqn", "dqn_dueling", "sac", "td3", "ddpg")
"""Those that have a native twin."""


def trajectory(case: str, backend: Literal["torch", "native"]) -> Trajectory:
    """The measurements of each of the gradient steps.

    Args:
        case: One of `CASES`.
        backend: What computes.
    """
    options: dict[str, Any] = {"hidden": (16, 16), "seed": 1, "learning_rate": 3e-3}
    options |= {"n_envs": 1, "train_freq": 1}
    algorithm = CASES[case](**options, backend=backend)
    update = algorithm.learner.update
    if backend == "native":
        generator = CASES[case](**options, backend="torch").generator
        update = partial(native_update, algorithm, generator)
    rows = []
    discrete = isinstance(algorithm.action_space, spaces.Discrete)
    for batch in batches(discrete, weighted=algorithm.config.prioritized):
        measured = update(batch)
        del measured["td_errors"]
        rows.append({name: float(f"{float(value):.6g}") for name, value in measured.items()})
    return rows


def native_update(algorithm: Any, generator: torch.Generator, batch: ReplayBatch) -> Any:
    """An update in native code with the noise that torch's would draw."""
    if algorithm.name == "dqn":
        return algorithm.learner.update(batch)
    n_draws = {"sac": 2, "td3": 1, "ddpg": 1}[algorithm.name]
    draws = [torch.empty(ROWS, 3).normal_(generator=generator) for _ in range(n_draws)]
    return algorithm.learner.update(batch, torch.stack(draws) if n_draws == 2 else draws[0])


def batches(discrete: bool, *, weighted: bool) -> Iterator[ReplayBatch]:
    """Batches with something to learn: what an action earns follows from the observation."""
    rng = np.random.default_rng(1)
    for _ in range(STEPS):
        obs = rng.normal(size=(ROWS, 4))
        actions: Array
        if discrete:
            actions = rng.integers(3, size=ROWS)
            earned = obs[np.arange(ROWS), actions]
        else:
            actions = rng.uniform(-1, 1, (ROWS, 3)).astype(np.float32)
            earned = -((actions - obs[:, :3]) ** 2).sum(1)
        columns = {
            "obs": obs,
            "rewards": earned + 0.1 * rng.normal(size=ROWS),
            "next_obs": obs + 0.3 * rng.normal(size=(ROWS, 4)),
            "discounts": 0.9 * (rng.random(ROWS) < 0.8),
        }
        if weighted:
            columns["weights"] = rng.uniform(0.3, 1.0, ROWS)
        tensors: dict[str, Any] = {
            name: torch.from_numpy(column).float() for name, column in columns.items()
        }
        yield ReplayBatch(**tensors, actions=torch.from_numpy(actions))
