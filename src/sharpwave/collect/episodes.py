"""Returns and lengths of whole episodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import fmean
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sharpwave.storage.files import count_of


class Episodes(Protocol):
    """Statistics of the episodes of a run: counts, returns, lengths and successes."""

    @property
    def count(self) -> int:
        """Episodes finished so far."""

    @property
    def returns(self) -> Sequence[float]:
        """Returns of the last episodes, oldest first."""

    @property
    def lengths(self) -> Sequence[int]:
        """Lengths of the last episodes, oldest first."""

    @property
    def mean_return(self) -> float:
        """Mean return of the last episodes, nan before the first ended."""

    @property
    def mean_length(self) -> float:
        """Mean length of the last episodes, nan before the first ended."""

    @property
    def success_rate(self) -> float | None:
        """Share of the last episodes that reached their goal; None where no infos say so."""

    def take_new(self) -> list[tuple[float, int]]:
        """Return and length of each episode that ended since the last call, oldest first.

        The first call gives none: only from then on are they kept for the next.
        """


def episode_metrics(episodes: Episodes) -> dict[str, float]:
    """The measures of the last episodes, by name."""
    metrics = {
        "mean_return": episodes.mean_return,
        "mean_length": episodes.mean_length,
        "episodes": float(episodes.count),
    }
    success_rate = episodes.success_rate
    if success_rate is not None:
        metrics["success_rate"] = success_rate
    return metrics


class EpisodeStats:
    """Returns and lengths of the episodes that N environments finished.

    Only whole episodes count, with the rewards the environment gave, before any scaling.

    Args:
        n_envs: Number of environments.
        window: Number of the last episodes that are kept and averaged; None keeps all.

    Example:
        >>> stats = EpisodeStats(n_envs=2)
        >>> stats.update(np.array([1.0, 2.0]), np.array([False, True]))
        >>> stats.update(np.array([1.0, 3.0]), np.array([True, False]))
        >>> list(stats.returns), list(stats.lengths), stats.mean_return
        ([2.0, 2.0], [1, 2], 2.0)
    """

    def __init__(self, n_envs: int, window: int | None = 100) -> None:
        self.count = 0
        self.returns: deque[float] = deque(maxlen=window)
        self.lengths: deque[int] = deque(maxlen=window)
        self.successes: deque[float] = deque(maxlen=window)
        self._new: deque[tuple[float, int]] | None = None
        self._running_returns = np.zeros(n_envs, np.float64)
        self._running_lengths = np.zeros(n_envs, np.int64)

    @property
    def mean_return(self) -> float:
        """Mean return of the last episodes, nan before the first ended."""
        return fmean(self.returns) if self.returns else float("nan")

    @property
    def mean_length(self) -> float:
        """Mean length of the last episodes, nan before the first ended."""
        return fmean(self.lengths) if self.lengths else float("nan")

    @property
    def success_rate(self) -> float | None:
        """Share of the last episodes that reached their goal; None where no infos say so."""
        return fmean(self.successes) if self.successes else None

    @classmethod
    def joined(cls, states: Sequence[dict[str, Any]], window: int = 100) -> EpisodeStats:
        """The last episodes of several processes.

        Args:
            states: Their `state_dict`.
            window: Number of episodes that are kept, equally many of each.
        """
        made, share = cls(0, window), max(1, window // len(states))
        for state in states:
            made.add(state["returns"][-share:], state["lengths"][-share:])
            made.successes.extend(state["successes"][-share:].tolist())
        made.count = sum(state["count"] for state in states)
        return made

    def add_successes(self, success: npt.NDArray[np.float64] | None) -> None:
        """Add which episodes reached their goal, [N], NaN where nothing is known of any."""
        if success is not None:
            self.successes.extend(success[~np.isnan(success)].tolist())

    def update(
        self,
        rewards: npt.NDArray[Any],
        ended: npt.NDArray[np.bool_],
        valid: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """Add one step of every environment.

        Args:
            rewards: [N].
            ended: [N], where the step was an episode's last.
            valid: [N], False where the row was only a reset; None when all are steps.
        """
        self._running_returns += rewards
        self._running_lengths += 1 if valid is None else valid
        if np.count_nonzero(ended):  # several times faster than any()
            self.add(self._running_returns[ended], self._running_lengths[ended])
            self._running_returns[ended] = 0
            self._running_lengths[ended] = 0

    def add(self, returns: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> None:
        """Add whole episodes that something else has counted.

        Args:
            returns: [E].
            lengths: [E].
        """
        self.returns.extend(returns.tolist())
        self.lengths.extend(lengths.tolist())
        self.count += len(returns)
        if self._new is not None:
            self._new.extend(zip(returns.tolist(), lengths.tolist(), strict=True))

    def take_new(self) -> list[tuple[float, int]]:
        """Return and length of each episode that ended since the last call, oldest first.

        The first call gives none: only from then on are they kept for the next. Another thread may
        go on adding meanwhile.
        """
        if self._new is None:
            self._new = deque()
        return [self._new.popleft() for _ in range(len(self._new))]

    def restart(self) -> None:
        """Forget the episodes in flight: the environments were reset."""
        self._running_returns[:] = 0
        self._running_lengths[:] = 0

    def state_dict(self) -> dict[str, Any]:
        """Everything, as arrays and numbers."""
        return {
            "count": self.count,
            "returns": np.array(self.returns, np.float64),
            "lengths": np.array(self.lengths, np.int64),
            "successes": np.array(self.successes, np.float64),
            "running_returns": self._running_returns.copy(),
            "running_lengths": self._running_lengths.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.count = count_of(state, "count")
        self.returns = deque(map(float, state["returns"]), maxlen=self.returns.maxlen)
        self.lengths = deque(map(int, state["lengths"]), maxlen=self.lengths.maxlen)
        told = map(float, state.get("successes", ()))
        self.successes = deque(told, maxlen=self.successes.maxlen)
        if self._new is not None:
            self._new.clear()
        if len(state["running_returns"]) == len(self._running_returns):
            self._running_returns[:] = state["running_returns"]
            self._running_lengths[:] = state["running_lengths"]
