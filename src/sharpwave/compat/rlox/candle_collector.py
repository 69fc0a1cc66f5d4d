"""rlox's collector of rollouts."""

from __future__ import annotations

from typing import Any

import numpy as np

from sharpwave.collect import NativeCollector
from sharpwave.compat.rlox.vec_env import BY_NAME

__all__ = ["CandleCollector"]

DOUBLES = ("rewards", "dones", "log_probs", "values", "advantages", "returns")


class CandleCollector(NativeCollector):
    """`sharpwave.NativeCollector` with rlox's arguments and flat batches.

    Args:
        env_id: Id of a native environment, with or without its version.
        n_envs: Number of environments.
        obs_dim: Numbers of an observation.
        n_actions: Number of actions, of continuous ones their size.
        n_steps: Steps of each environment in a rollout.
        hidden: Width of the two hidden layers.
        lr: Not used: a collector does not learn.
        gamma: Discount.
        gae_lambda: λ of the advantages.
        seed: Seed of weights, environments and actions.
        capacity: Rollouts that may wait, at least 1.

    Raises:
        ValueError: An argument does not fit the environment or is out of range.

    Example:
        >>> collector = CandleCollector("CartPole", 2, 4, 2, 8, seed=1)
        >>> batch = collector.recv()
        >>> collector.stop()
        >>> batch["observations"].shape, batch["returns"].dtype, batch["n_envs"]
        ((64,), dtype('float64'), 2)
    """

    def __init__(
        self,
        env_id: str,
        n_envs: int,
        obs_dim: int,
        n_actions: int,
        n_steps: int,
        hidden: int = 64,
        lr: float = 2.5e-4,  # noqa: ARG002
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        seed: int = 42,
        capacity: int = 2,
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        super().__init__(
            BY_NAME.get(env_id, env_id),
            n_envs,
            obs_dim,
            n_actions,
            n_steps,
            hidden,
            seed=seed,
            gamma=gamma,
            gae_lambda=gae_lambda,
            capacity=capacity,
        )

    def recv(self) -> dict[str, Any]:
        """The oldest rollout, step by step: element t * n_envs + env; waits until there is one.

        Returns:
            `observations` and `actions` float32; `rewards`, `dones`, `log_probs`, `values`,
            `advantages`, `returns` float64; `obs_dim`, `act_dim`, `n_steps`, `n_envs`.
        """
        return _flat(super().recv())

    def try_recv(self) -> dict[str, Any] | None:
        """The result of `recv` where a rollout waits, otherwise None."""
        batch = super().try_recv()
        return None if batch is None else _flat(batch)


def _flat(batch: dict[str, Any]) -> dict[str, Any]:
    n_steps, n_envs, obs_dim = batch["observations"].shape
    return {
        "observations": batch["observations"].reshape(-1),
        "actions": batch["actions"].reshape(-1).astype(np.float32),
        **{name: batch[name].reshape(-1).astype(np.float64) for name in DOUBLES},
        "obs_dim": obs_dim,
        "act_dim": 1,
        "n_steps": n_steps,
        "n_envs": n_envs,
    }
