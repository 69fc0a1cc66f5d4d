"""rlox's buffers of steps in their order: windows of them, and goals in hindsight."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from sharpwave import buffers
from sharpwave.buffers import Sequence as Window
from sharpwave.buffers import Transition
from sharpwave.buffers.replay import check_count
from sharpwave.types import BatchDict

__all__ = ["HERBuffer", "SequenceReplayBuffer"]

_STRATEGIES = ("future", "final", "episode")
_STEP = ("obs", "next_obs", "actions", "rewards", "terminated", "truncated")


class _InOrder(buffers.ReplayBuffer):
    """Steps of one environment, pushed in rlox's order of arguments."""

    __slots__ = ()

    def __init__(self, capacity: int, obs_dim: int, act_dim: int) -> None:
        # Windows overlap, so that there may be more of them in a batch than steps.
        self._make(capacity, obs_dim, act_dim, fields=None, n_envs=1, seed=0, oversample=True)

    def push(
        self,
        obs: npt.ArrayLike,
        next_obs: npt.ArrayLike,
        action: npt.ArrayLike,
        reward: float,
        terminated: bool,
        truncated: bool,
    ) -> None:
        """Append a step."""
        super().push(obs, action, reward, terminated, truncated, next_obs)

    def num_complete_episodes(self) -> int:
        """Episodes in the buffer that have ended."""
        flags = self.gather(self.indices(), view=Transition(("terminated", "truncated")))
        return int(np.count_nonzero(flags["terminated"] | flags["truncated"]))

    def save(self, path: str | os.PathLike[str]) -> None:  # noqa: ARG002
        raise ValueError(
            "this buffer is not saved to folders: use sharpwave.ReplayBuffer(n_envs=1)"
        )


class SequenceReplayBuffer(_InOrder):
    """Steps of which windows can be drawn that stay within an episode.

    Args:
        capacity: Steps to keep.
        obs_dim: Length of observations.
        act_dim: Length of actions.

    Example:
        >>> buffer = SequenceReplayBuffer(100, 2, 1)
        >>> for t in range(20):
        ...     buffer.push([t, t], [t + 1, t + 1], [0.0], 1.0, t % 10 == 9, False)
        >>> buffer.sample_sequences(3, 4, seed=0)["actions"].shape
        (3, 4, 1)
    """

    __slots__ = ()

    def sample_sequences(self, batch_size: int, seq_len: int, seed: int | None = None) -> BatchDict:
        """Windows of consecutive steps of an episode, [batch_size, seq_len, ...].

        Raises:
            ValueError: No episode is that long.
        """
        batch = self.sample(batch_size, seed, view=Window(seq_len))
        found = {name: batch[name] for name in _STEP}
        found["actions"] = found["actions"].reshape(batch_size, seq_len, -1)
        return found


class HERBuffer(_InOrder):
    """Steps whose goals are replaced, when drawn, by goals that were achieved later.

    A step with another goal has reward 0 and is terminal where it achieves that goal, and -1 where
    it does not.

    Args:
        capacity: Steps to keep.
        obs_dim: Length of observations, goals among them.
        act_dim: Length of actions.
        goal_dim: Length of a goal.
        achieved_goal_start: Where in an observation the achieved goal begins.
        desired_goal_start: Where the desired one begins.
        strategy: "future", "final" or "episode": where in the episode goals come from.
        k: Not used: `her_ratio` of `sample` says how many steps get another goal.
        goal_tolerance: How near a goal counts as achieved.

    Raises:
        ValueError: An argument does not fit.
    """

    __slots__ = ("_achieved", "_desired", "_strategy", "_tolerance")

    def __init__(
        self,
        capacity: int,
        obs_dim: int,
        act_dim: int,
        goal_dim: int,
        achieved_goal_start: int,
        desired_goal_start: int,
        strategy: str = "future",
        k: int = 4,  # noqa: ARG002
        goal_tolerance: float = 0.05,
    ) -> None:
        if strategy not in _STRATEGIES:
            raise ValueError(f"strategy must be one of {_STRATEGIES}, got {strategy!r}")
        super().__init__(capacity, obs_dim, act_dim)
        check_count("goal_dim", goal_dim, 1, obs_dim)
        last = obs_dim - goal_dim
        start = check_count("achieved_goal_start", achieved_goal_start, 0, last)
        self._achieved = slice(start, start + goal_dim)
        start = check_count("desired_goal_start", desired_goal_start, 0, last)
        self._desired = slice(start, start + goal_dim)
        self._strategy = _STRATEGIES.index(strategy)
        self._tolerance = float(goal_tolerance)

    def sample(  # type: ignore[override]
        self, batch_size: int, her_ratio: float = 0.8, seed: int | None = None
    ) -> BatchDict:
        """Draw steps, a share `her_ratio` of them with other goals."""
        if not 0.0 <= her_ratio <= 1.0:
            raise ValueError(f"her_ratio must be from 0 to 1, got {her_ratio}")
        batch = super().sample(batch_size, seed, indices=True)
        ids, chosen = self._engine.choose_goals(
            batch.pop("indices"), self._strategy, her_ratio, seed
        )
        rows = chosen.view(np.bool_)
        goals = self.gather(ids, view=Transition(("next_obs",)))["next_obs"][rows, self._achieved]
        for name in ("obs", "next_obs"):
            batch[name][rows, self._desired] = goals
        distances = np.linalg.norm(batch["next_obs"][rows, self._achieved] - goals, axis=1)
        reached = distances <= self._tolerance
        batch["rewards"][rows] = np.where(reached, 0.0, -1.0)
        batch["terminated"][rows] = reached
        return batch

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("HERBuffer cannot be pickled: use sharpwave.ReplayBuffer with Hindsight")
