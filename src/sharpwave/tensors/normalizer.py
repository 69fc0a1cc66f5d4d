"""Normalization of batches of raw steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sharpwave.core.lazy import torch
from sharpwave.core.tree import map_leaves
from sharpwave.types import Nested

if TYPE_CHECKING:
    from sharpwave.envs import VecNormalize

__all__ = ["TensorNormalizer"]


class TensorNormalizer:
    """Does to tensors what a `VecNormalize` does to observations and rewards.

    Steps that are stored raw and normalized when they are drawn always agree with the present
    statistics.

    Args:
        normalizer: Whose statistics to apply.
        device: Device of the tensors.
        n_step: Rewards that are summed, each of which may be as large as the bound of one.
    """

    def __init__(self, normalizer: VecNormalize, device: torch.device, n_step: int = 1) -> None:
        self._normalizer = normalizer
        self._clip_rewards = normalizer.clip_reward * n_step
        self._reward_scale = torch.ones((), device=device)
        self._moments: Nested = None
        if normalizer.get_obs_rms() is not None:
            self._moments = map_leaves(
                lambda stats: stats and _Moments(stats, device), normalizer.get_obs_rms()
            )
        self.refresh()

    def refresh(self) -> None:
        """Take the statistics as they are now."""
        normalizer = self._normalizer
        if self._moments is not None:
            map_leaves(lambda own: own and own.refresh(normalizer.epsilon), self._moments)
        if normalizer.norm_reward:
            self._reward_scale.fill_(1.0 / normalizer.reward_std)

    def obs(self, obs: Nested) -> Nested:
        """Observations [B, ...]."""
        if self._moments is None:
            return obs
        return map_leaves(self._normalized, self._moments, obs)

    def _normalized(self, own: _Moments | None, leaf: torch.Tensor) -> torch.Tensor:
        if own is None:
            return leaf
        clip = self._normalizer.clip_obs
        return (leaf.float() - own.mean).mul_(own.scale).clamp_(-clip, clip)

    def rewards(self, rewards: torch.Tensor) -> torch.Tensor:
        """Rewards [B]."""
        if not self._normalizer.norm_reward:
            return rewards
        return (rewards * self._reward_scale).clamp_(-self._clip_rewards, self._clip_rewards)


class _Moments:
    """Mean and inverse deviation of one leaf, at an address that stays."""

    def __init__(self, stats: Any, device: torch.device) -> None:
        self._stats = stats
        self.mean = torch.zeros(stats.shape, device=device)
        self.scale = torch.ones(stats.shape, device=device)

    def refresh(self, epsilon: float) -> None:
        scale = 1.0 / np.sqrt(self._stats.var + epsilon)
        for tensor, values in ((self.mean, self._stats.mean), (self.scale, scale)):
            tensor.copy_(torch.from_numpy(np.asarray(values, np.float32)), non_blocking=True)
