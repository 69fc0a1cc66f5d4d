"""rlox's collector of rollouts in the background."""

from __future__ import annotations

from typing import Any

import numpy as np

from sharpwave.collect.native_collector import NativeCollector
from sharpwave.compat.rlox.vec_env import BY_NAME

__all__ = ["CandleCollector"]


class CandleCollector(NativeCollector):
    """`sharpwave.collect.NativeCollector`, whose rollouts are flat arrays, step after step.

    Args:
        env_id: A native environment, with or without its version.
        n_envs: Number of environments.
        obs_dim: Numbers of an observation.
        n_actions: Number of actions.
        n_steps: Steps of a rollout.
        hidden: Width of the two hidden layers.
        lr: Ignored: it collects.
        gamma: Discount.
        gae_lambda: λ of the advantages.
        seed: Of weights, environments and actions.
        capacity: Finished rollouts that wait to be taken.

    Example:
        >>> collector = CandleCollector("CartPole-v1", 4, 4, 2, 8, seed=0)
        >>> batch = collector.recv()
        >>> batch["observations"].shape, batch["advantages"].dtype
        ((128,), dtype('float64'))
        >>> collector.stop()
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
        super().__init__(
            BY_NAME.get(env_id, env_id),
            n_envs,
            obs_dim,
            n_actions,
            n_steps,
            hidden,
            gamma,
            gae_lambda,
            seed,
            capacity,
        )
        self._sizes = {"obs_dim": obs_dim, "act_dim": 1, "n_steps": n_steps, "n_envs": n_envs}

    def recv(self) -> dict[str, Any]:
        """The next rollout; waits for it. Flat arrays: all environments of a step, then the next.

        Raises:
            RuntimeError: The collector was stopped, or its thread failed.
        """
        return self._flat(super().recv())

    def try_recv(self) -> dict[str, Any] | None:
        """The next rollout, or None where none is finished yet."""
        rollout = super().try_recv()
        return None if rollout is None else self._flat(rollout)

    def _flat(self, rollout: dict[str, Any]) -> dict[str, Any]:
        dones = rollout["terminated"] | rollout["truncated"]
        numbers = {name: rollout[name] for name in ("log_probs", "values", "advantages", "returns")}
        numbers = {"rewards": rollout["rewards"], "dones": dones, **numbers}
        return {
            "observations": rollout["obs"].reshape(-1),
            "actions": rollout["actions"].reshape(-1).astype(np.float32),
            **{name: array.reshape(-1).astype(np.float64) for name, array in numbers.items()},
            **self._sizes,
        }
