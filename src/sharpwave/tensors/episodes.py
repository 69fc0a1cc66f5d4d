"""Returns and lengths of whole episodes, added up on the device of their environments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sharpwave.core.lazy import torch
from sharpwave.types import Array

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TensorEpisodes"]

SUCCESS = "success"
"""Name of the flag of success in the tracker."""


class TensorEpisodes:
    """Returns and lengths of the episodes that N environments finished, in a `StatsTracker`.

    It is read like `EpisodeStats`; reading waits for the device.

    Args:
        n_envs: Number of environments.
        device: Device of the sums.
        window: Number of the last episodes that are kept and averaged.
    """

    def __init__(self, n_envs: int, device: Any, window: int = 100) -> None:
        from sharpwave.tensors.buffers import StatsTracker

        self.tracker = StatsTracker(
            n_envs, max_ep_info_buffer=window, done_reason_keys=[SUCCESS], device=device
        )
        self._says_success = False
        self._taken: int | None = None

    @property
    def count(self) -> int:
        """Episodes finished so far."""
        return self.tracker.episode_count

    @property
    def returns(self) -> list[float]:
        """Returns of the last episodes, oldest first."""
        return self._values("Rollout/rewards")

    @property
    def lengths(self) -> list[int]:
        """Lengths of the last episodes, oldest first."""
        return [int(length) for length in self._values("Rollout/lengths")]

    @property
    def mean_return(self) -> float:
        """Mean return of the last episodes, nan before the first ended."""
        return _mean(self.returns)

    @property
    def mean_length(self) -> float:
        """Mean length of the last episodes, nan before the first ended."""
        return _mean(self.lengths)

    @property
    def success_rate(self) -> float | None:
        """Share of the last episodes that reached their goal; None where no infos say so."""
        return _mean(self._successes.tolist()) if len(self._successes) else None

    @property
    def _successes(self) -> Array:
        return self.tracker.reason(SUCCESS) if self._says_success else np.empty(0)

    def update(self, done: Tensor, rewards: Tensor, success: Tensor | None) -> None:
        """Add one step of every environment, without waiting for the device.

        Args:
            done: [N] bool, where the step was an episode's last.
            rewards: [N].
            success: [N], nonzero where that episode reached its goal; None where nobody says.
        """
        self._says_success |= success is not None
        self.tracker.update(
            done, rewards, done_reasons=None if success is None else {SUCCESS: success}
        )

    def take_new(self) -> list[tuple[float, int]]:
        """Return and length of the episodes that ended since the last call, oldest first.

        Of more than the window has, the last; the first call gives none. It waits for the device.
        """
        before, self._taken = self._taken, self.count
        n_new = 0 if before is None else self._taken - before
        if n_new == 0:
            return []
        return list(zip(self.returns[-n_new:], self.lengths[-n_new:], strict=True))

    def restart(self) -> None:
        """Forget episodes in flight: the environments were reset."""
        self.tracker.restart()

    def state_dict(self) -> dict[str, Any]:
        """Everything, as arrays and numbers, as `EpisodeStats` gives it."""
        running = _array(self.tracker.state_dict()["running"])
        return {
            "count": self.count,
            "returns": np.array(self.returns, np.float64),
            "lengths": np.array(self.lengths, np.int64),
            "successes": self._successes.astype(np.float64),
            "running_returns": running[0],
            "running_lengths": running[1].astype(np.int64),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`, also from that of `EpisodeStats`."""
        tensors = self.tracker.state_dict()
        successes = np.zeros(len(state["returns"]))
        told = np.asarray(state.get("successes", ()), np.float64)[: len(successes)]
        successes[len(successes) - len(told) :] = told  # of the latest
        self._says_success = len(told) > 0
        rows = np.array([state["returns"], state["lengths"], successes], "d")
        tensors["episodes"] = torch.from_numpy(rows)
        tensors["count"] = torch.tensor(int(state["count"]))
        running = torch.from_numpy(
            np.array([state["running_returns"], state["running_lengths"]], "d")
        )
        if running.shape == tensors["running"].shape:
            tensors["running"] = running
        self.tracker.load_state_dict(tensors)
        self._taken = None if self._taken is None else self.count

    def _values(self, name: str) -> list[float]:
        values: list[float] = self.tracker.get_raw_values().get(name, np.empty(0)).tolist()
        return values


def _mean(values: list[Any]) -> float:
    return float(np.mean(values)) if values else float("nan")


def _array(tensor: Any) -> Any:
    return tensor.detach().cpu().numpy()
