"""Batches of a replay buffer as arrays, for native learners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sharpwave.core.tree import map_leaves
from sharpwave.learners.replay import INDICES, ReplayBatch, ReplaySampler, check_whole
from sharpwave.types import Array, Nested

if TYPE_CHECKING:
    from sharpwave.envs import VecNormalize

__all__ = ["ArrayNormalizer", "ArraySampler"]


class ArrayNormalizer:
    """Does to batches what a `VecNormalize` does to observations and rewards.

    Args:
        normalizer: Whose statistics to apply.
        device: None, since arrays have none.
        n_step: Rewards that are summed, each of which may be as large as the bound of one.
    """

    def __init__(self, normalizer: VecNormalize, device: None = None, n_step: int = 1) -> None:  # noqa: ARG002
        self._normalizer = normalizer
        self._clip_rewards = normalizer.clip_reward * n_step

    def refresh(self) -> None:
        """Nothing: the statistics are always those of now."""

    def obs(self, obs: Nested) -> Nested:
        """Observations [B, ...]."""
        return self._normalizer.normalize_obs(obs)

    def rewards(self, rewards: Array) -> Array:
        """Rewards [B]."""
        if not self._normalizer.norm_reward:
            return rewards
        scaled: Array = rewards / np.float32(self._normalizer.reward_std)
        return np.clip(scaled, -self._clip_rewards, self._clip_rewards)


class ArraySampler(ReplaySampler):
    """A `ReplaySampler` whose batches are arrays."""

    Normalizer = ArrayNormalizer

    def _reserve(self) -> None:
        self._out = self.buffer.batch(self.batch_size, view=self.view, **self._how)

    def _brought(self, drawn: dict[str, Any]) -> dict[str, Any]:
        ids = {name: drawn.pop(name) for name in (INDICES,) if name in drawn}
        return {**map_leaves(np.asarray, drawn), **ids}

    def _discounts(self, drawn: Any) -> Any:
        if "discounts" in drawn:
            return drawn["discounts"]
        return np.where(drawn["terminated"], np.float32(0.0), np.float32(self.gamma))

    def _actions(self, actions: Any) -> Any:
        if self.radius is None:
            return super()._actions(actions)
        rows = actions.reshape(len(actions), -1)
        return rows if self._is_unit else (rows - self.middle) / self.radius

    def _whole(self, actions: Any) -> Any:
        whole = actions.astype(np.int64, copy=False)
        if actions.dtype.kind == "f":
            check_whole(bool((whole == actions).all()), actions)
        return whole

    def report(self, batch: ReplayBatch, metrics: Mapping[str, Any]) -> None:
        """Write the new priorities of a batch that was learned from, by its `td_errors` [B]."""
        td_errors = metrics.get("td_errors")
        if batch.indices is not None and td_errors is not None:
            priorities = np.abs(td_errors) + np.float32(1e-6)
            self.buffer.update_priorities(np.asarray(batch.indices), priorities)
