"""`sharpwave.Trainer` with the arguments and results of rlox's."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from sharpwave.agents import OnlineAgent
from sharpwave.algorithms import trainer
from sharpwave.compat.rlox.algorithms import A2C, DQN, PPO, SAC, TD3
from sharpwave.core.suggest import did_you_mean
from sharpwave.runs.callbacks import Callback
from sharpwave.runs.loggers import LoggerCallback

__all__ = ["ALGORITHM_REGISTRY", "Trainer"]

ALGORITHM_REGISTRY: dict[str, type[OnlineAgent]] = {
    "ppo": PPO,
    "a2c": A2C,
    "dqn": DQN,
    "sac": SAC,
    "td3": TD3,
}
"""Algorithms by name."""


class Trainer(trainer.Trainer):
    """Trains an algorithm that is given by its name.

    Args:
        algorithm: A name in `ALGORITHM_REGISTRY`, or a class.
        env: Environment, as for `sharpwave.Trainer`.
        config: Options of the algorithm; they win over `seed` and `compile`.
        callbacks: Called during every `train`.
        logger: Logger of metrics.
        seed: Seed of weights, actions and environments.
        compile: Compile the loss.

    Raises:
        TypeError: An option does not exist.
        ValueError: There is no such algorithm, or an option has an impossible value.

    Example:
        >>> trainer = Trainer("ppo", env="CartPole-v1", config={"n_envs": 2, "n_steps": 32})
        >>> metrics = trainer.train(total_timesteps=64)
        >>> sorted(trainer.evaluate(n_episodes=2))[:2]
        ['max_reward', 'mean_length']
    """

    def __init__(
        self,
        algorithm: str | type[OnlineAgent],
        env: Any,
        config: Mapping[str, Any] | None = None,
        callbacks: Callback | Iterable[Callback] | None = None,
        logger: LoggerCallback | Iterable[LoggerCallback] | None = None,
        seed: int = 42,
        compile: bool = False,
    ) -> None:
        options = {"seed": seed, "compile": compile, **(config or {})}
        super().__init__(
            _class_of(algorithm), env, config=options, callbacks=callbacks, logger=logger
        )

    @classmethod
    def from_checkpoint(  # type: ignore[override]
        cls,
        path: str | os.PathLike[str],
        algorithm: str | type[OnlineAgent],
        env: Any = None,
    ) -> Trainer:
        """Restore the trainer of a checkpoint; see `OnlineAgent.from_checkpoint`."""
        restored = cls.__new__(cls)
        restored.algo = _class_of(algorithm).from_checkpoint(path, env)
        restored.run_dir = None
        return restored

    def evaluate(  # type: ignore[override]
        self, n_episodes: int = 10, seed: int = 0, render: bool = False
    ) -> dict[str, float]:
        """Play whole episodes deterministically, with the mode of the policy.

        Returns:
            mean_reward, std_reward, min_reward, max_reward, mean_length and n_episodes.
        """
        env = self.algo.make_env(1, render_mode="human") if render else None
        try:
            result = self.algo.evaluate(n_episodes, env=env, seed=seed)
        finally:
            if env is not None:
                env.close()
        return {
            "mean_reward": result.mean,
            "std_reward": result.std,
            "min_reward": float(np.min(result.returns)),
            "max_reward": float(np.max(result.returns)),
            "mean_length": result.mean_length,
            "n_episodes": n_episodes,
        }


def _class_of(algorithm: str | type[OnlineAgent]) -> type[OnlineAgent]:
    if not isinstance(algorithm, str):
        return algorithm
    name = algorithm.lower()
    if name not in ALGORITHM_REGISTRY:
        raise ValueError(
            f"unknown algorithm {algorithm!r}{did_you_mean(name, ALGORITHM_REGISTRY)} "
            f"(there are {', '.join(ALGORITHM_REGISTRY)})"
        )
    return ALGORITHM_REGISTRY[name]
