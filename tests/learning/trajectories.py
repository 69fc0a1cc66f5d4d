"""Fifty updates on batches that no environment had a part in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

import sharpwave as sw
from sharpwave.learners.batch import OnPolicyBatch
from sharpwave.types import Array

Trajectory = list[dict[str, float]]

UPDATES = 50
ROWS = 64
METRICS = ("loss", "policy_loss", "value_loss", "entropy", "grad_norm")


class Spaces(gym.Env[Any, Any]):
    """Says what observations and actions are, and is never stepped."""

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)

    def __init__(self, discrete: bool) -> None:
        self.action_space = (
            spaces.Discrete(3) if discrete else spaces.Box(-1.0, 1.0, (2,), np.float32)
        )


DISCRETE, CONTINUOUS = partial(Spaces, discrete=True), partial(Spaces, discrete=False)
PPO = partial(sw.PPO, batch_size=16, n_epochs=2, learning_rate=3e-3)
A2C = partial(sw.A2C, n_envs=ROWS, n_steps=1, learning_rate=3e-3)

CASES: dict[str, Callable[..., Any]] = {
    "ppo_discrete": partial(PPO, DISCRETE),
    "ppo_continuous": partial(PPO, CONTINUOUS, clip_vloss=True),
    "a2c_discrete": partial(A2C, DISCRETE),
    "a2c_continuous": partial(A2C, CONTINUOUS, normalize_advantages=True),
}


def trajectory(case: str, backend: Literal["torch", "native"]) -> Trajectory:
    """The measurements of each of the updates.

    Args:
        case: One of `CASES`.
        backend: What computes.
    """
    algorithm = CASES[case](hidden=(16, 16), seed=1, ent_coef=0.01, backend=backend)
    if backend == "native":
        # The rows that torch's updates take.
        generator = torch.Generator().manual_seed(algorithm.learner.seeds.learning)
        vars(algorithm.learner)["orders"] = lambda n_orders, n: np.stack(
            [torch.randperm(n, generator=generator).numpy() for _ in range(n_orders)]
        )
    rows = []
    for update, batch in enumerate(batches(algorithm.action_space)):
        algorithm.learner.follow(1 - update / UPDATES)
        measured = algorithm.update(batch)
        rows.append({name: float(f"{float(measured[name]):.6g}") for name in METRICS})
    return rows


def batches(action_space: spaces.Space[Any]) -> Iterator[OnPolicyBatch]:
    """Batches with something to learn: good actions and values follow from the observation."""
    rng = np.random.default_rng(1)
    for _ in range(UPDATES):
        obs = rng.normal(size=(ROWS, 4))
        actions: Array
        if isinstance(action_space, spaces.Discrete):
            actions = rng.integers(3, size=ROWS)
            log_probs = np.full(ROWS, -np.log(3))
            advantages = 1.0 * (actions == obs[:, :3].argmax(1))
        else:
            actions = rng.normal(size=(ROWS, 2)).astype(np.float32)
            log_probs = (-0.5 * actions**2 - 0.5 * np.log(2 * np.pi)).sum(1)
            advantages = -((actions - obs[:, :2]) ** 2).sum(1)
        noise = 0.1 * rng.normal(size=(3, ROWS))
        values = obs.sum(1)
        columns = {
            "obs": obs,
            "log_probs": log_probs + noise[0],
            "values": values + noise[1],
            "advantages": advantages - advantages.mean(),
            "returns": values + noise[2],
        }
        tensors: dict[str, Any] = {
            name: torch.from_numpy(column).float() for name, column in columns.items()
        }
        yield OnPolicyBatch(**tensors, actions=torch.from_numpy(actions))
