"""Evaluation of a policy over whole episodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sharpwave.collect.collector import raw_rewards
from sharpwave.envs import Stepper, action_masks
from sharpwave.types import Array, Nested


class Player(Protocol):
    """Plays environments: knows the policy, its normalisation and its recurrent state."""

    def play(
        self,
        obs: Nested,
        starts: npt.NDArray[np.bool_],
        masks: npt.NDArray[np.bool_] | None = None,
    ) -> Array:
        """Actions for the environments, from observations [N, ...] as they gave them."""


@dataclass(frozen=True)
class EvaluationResult:
    """Returns and lengths of the episodes of one evaluation, in the order they ended."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        """Standard deviation of the returns."""
        return float(np.std(self.returns))

    @property
    def mean_length(self) -> float:
        """Mean episode length."""
        return float(np.mean(self.lengths))

    def __str__(self) -> str:
        return f"{self.mean:.1f} ± {self.std:.1f} over {len(self.returns)} episodes"


def evaluate(player: Player, env: Any, n_episodes: int, seed: int | None) -> EvaluationResult:
    """Play `n_episodes` whole episodes.

    Every environment plays its share, so that short episodes are not counted more often than long
    ones.

    Args:
        player: What plays.
        env: A vector environment; it is reset first.
        n_episodes: At least 1.
        seed: Seed of the environments.
    """
    if n_episodes < 1:
        raise ValueError(f"n_episodes must be at least 1, got {n_episodes}")
    n_envs = env.num_envs
    left = np.array([(n_episodes + i) // n_envs for i in range(n_envs)])
    running_returns = np.zeros(n_envs, np.float64)
    running_lengths = np.zeros(n_envs, np.int64)
    returns: list[float] = []
    lengths: list[int] = []

    stepper = Stepper(env)
    obs, infos = stepper.reset(seed=seed)
    starts = np.ones(n_envs, np.bool_)
    while left.any():
        step = stepper.step(player.play(obs, starts, action_masks(env, infos)))
        obs, infos = step.obs, step.infos
        real = np.ones(n_envs, np.bool_) if step.real is None else step.real
        running_returns += np.where(real, raw_rewards(step), 0)
        running_lengths += real
        ended = step.terminated | step.truncated
        for i in np.flatnonzero(ended):
            if left[i]:
                returns.append(float(running_returns[i]))
                lengths.append(int(running_lengths[i]))
                left[i] -= 1
        running_returns[ended] = 0
        running_lengths[ended] = 0
        starts = ~real if stepper.mode == "next_step" else ended
    return EvaluationResult(tuple(returns), tuple(lengths))
