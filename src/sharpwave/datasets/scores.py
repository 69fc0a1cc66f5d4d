"""Reference returns, and scores: returns on a scale from 0, random actions, to 100, an expert."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from sharpwave.core.suggest import did_you_mean
from sharpwave.types import Array

if TYPE_CHECKING:
    from sharpwave.episodes import EpisodeBuffer

__all__ = [
    "REFERENCES",
    "Reference",
    "episode_returns",
    "measure_reference",
    "normalized_score",
    "reference",
]


@dataclass(frozen=True)
class Reference:
    """The returns that stand for the scores 0 and 100 of an environment."""

    random: float
    """Mean return of uniformly random actions: 0."""
    expert: float
    """Mean return of an expert: 100."""
    source: str
    """Source of the two returns."""


def reference(env_id: str) -> Reference:
    """The reference returns of an environment.

    Args:
        env_id: An id of `REFERENCES`; of Hopper, HalfCheetah, Walker2d and Ant any version.

    Raises:
        ValueError: There are none for it.

    Example:
        >>> reference("Hopper-v5").expert
        3234.3
    """
    found = find_reference(env_id)
    if found is None:
        raise ValueError(
            f"there are no reference returns for {env_id!r}{did_you_mean(env_id, REFERENCES)} "
            f"(there are some for {', '.join(REFERENCES)})"
        )
    return found


def find_reference(env_id: str) -> Reference | None:
    """The reference returns of an environment, None where there are none."""
    return REFERENCES.get(env_id) or REFERENCES.get(env_id.rpartition("-v")[0])


_MEASURED = "measure_reference: 300 episodes each of random actions and of the expert"
_D4RL = "D4RL's, of random and of SAC policies"

REFERENCES = {
    "CartPole-v1": Reference(22.0, 500.0, _MEASURED),
    "Pendulum-v1": Reference(-1223.3, -148.9, _MEASURED),
    "MountainCar-v0": Reference(-200.0, -106.6, _MEASURED),
    "MountainCarContinuous-v0": Reference(-33.4, 97.8, _MEASURED),
    "Acrobot-v1": Reference(-499.2, -83.9, _MEASURED),
    "LunarLander-v3": Reference(-173.9, 281.8, _MEASURED),
    "LunarLanderContinuous-v3": Reference(-203.3, 281.8, _MEASURED),
    # Published by D4RL, which takes the same for all versions.
    "Hopper": Reference(-20.272305, 3234.3, _D4RL),
    "HalfCheetah": Reference(-280.178953, 12135.0, _D4RL),
    "Walker2d": Reference(1.629008, 4592.3, _D4RL),
    "Ant": Reference(-325.6, 3879.7, _D4RL),
}


@overload
def normalized_score(env_id: str, returns: float) -> float: ...


@overload
def normalized_score(env_id: str, returns: npt.ArrayLike) -> Array: ...


def normalized_score(env_id: str, returns: npt.ArrayLike) -> float | Array:
    """100 (R - random) / (expert - random) with the reference returns of an environment.

    Args:
        env_id: An environment that `reference` knows.
        returns: Undiscounted returns of episodes, one or an array.

    Raises:
        ValueError: There are no reference returns for the environment.

    Example:
        >>> normalized_score("HalfCheetah-v5", 12135.0)
        100.0
        >>> normalized_score("HalfCheetah-v5", [12135.0, -280.178953])
        array([100.,   0.])
    """
    known = reference(env_id)
    scores: Array = np.asarray(returns, np.float64) - known.random
    scores = 100 * scores / (known.expert - known.random)
    return float(scores) if scores.ndim == 0 else scores


def episode_returns(dataset: EpisodeBuffer | str | os.PathLike[str] | Mapping[str, Any]) -> Array:
    """The undiscounted return of each episode, [E].

    Args:
        dataset: An `EpisodeBuffer` or its folder, with a field reward; or arrays as `collect` gives
            them.

    Example:
        >>> from sharpwave.datasets import collect
        >>> episode_returns(collect("Pendulum-v1", "expert", n_episodes=3)).shape
        (3,)
    """
    if isinstance(dataset, Mapping):
        rewards = np.asarray(dataset["rewards"], np.float64)
        ended = np.asarray(dataset["terminated"], np.bool_) | np.asarray(dataset["truncated"])
        ends = np.flatnonzero(ended[:-1]) + 1
        return np.add.reduceat(rewards, np.concatenate([[0], ends]))
    if isinstance(dataset, str | os.PathLike):
        from sharpwave.episodes import EpisodeBuffer

        with EpisodeBuffer.from_folder(dataset, read_only=True) as opened:
            return episode_returns(opened)
    table = dataset.episodes()
    ends = np.cumsum(table.lengths)
    begins = ends - table.lengths
    rows = np.arange(int(table.lengths.sum())) + np.repeat(table.starts - begins, table.lengths)
    rewards = dataset.gather(rows, ["reward"])["reward"].astype(np.float64)
    return np.add.reduceat(rewards, begins) if len(table) else np.zeros(0)


def measure_reference(env_id: str, n_episodes: int = 300, seed: int = 0) -> Reference:
    """Measure the reference returns of an environment that has a scripted expert.

    Args:
        env_id: One of `expert_ids()`.
        n_episodes: Number of episodes of random actions, and of the expert.
        seed: Random seed of both.

    Example:
        >>> measure_reference("MountainCar-v0", n_episodes=2).random
        -200.0
    """
    from sharpwave.datasets.collecting import collect

    random, expert = (
        float(episode_returns(collect(env_id, policy, n_episodes=n_episodes, seed=seed)).mean())
        for policy in ("random", "expert")
    )
    source = f"measure_reference: {n_episodes} episodes each of random actions and of the expert"
    return Reference(random, expert, source)
