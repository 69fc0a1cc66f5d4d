"""Batches of a replay buffer as tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sharpwave.collect.off_policy import MASK, OBSERVATION
from sharpwave.lazy import torch
from sharpwave.nest import map_leaves

if TYPE_CHECKING:
    from sharpwave.buffers.views import View


@dataclass
class ReplayBatch:
    """Steps to learn from; the target of a value function is rewards + discounts · V(next_obs).

    Attributes:
        obs: [B, ...], nested where the space is.
        actions: [B, d] in [-1, 1], or [B, ...] whole numbers from 0 on.
        rewards: [B], summed over the steps of an n-step transition.
        next_obs: [B, ...] what the last of these steps led to.
        discounts: [B] γ^m after m steps, 0 where the episode terminated.
        masks: [B, n] actions allowed at `obs`; None where all are.
        next_masks: [B, n] the same at `next_obs`.
        weights: [B] of prioritised draws, None elsewhere.
        indices: Ids of the steps in a prioritised buffer.
        td_errors: [B] set by the gradient step, to become priorities.
    """

    obs: Any
    actions: torch.Tensor
    rewards: torch.Tensor
    next_obs: Any
    discounts: torch.Tensor
    masks: torch.Tensor | None = None
    next_masks: torch.Tensor | None = None
    weights: torch.Tensor | None = None
    indices: Any = None
    td_errors: torch.Tensor | None = None


class ReplaySampler:
    """Draws batches of a buffer for a learner.

    Args:
        buffer: One of ours, or anything with `sample(batch_size)` that gives the same entries.
        batch_size: Steps in a batch.
        view: What a step becomes; None for a buffer that is not ours.
        gamma: Discount, for views that do not apply it.
        device: Where the tensors go.
        middle: [d] of continuous actions; what is subtracted from whole numbers.
        radius: [d] of continuous actions, None for whole numbers.
        obs_moments: Mean and deviation that observations are normalised by, where the buffer holds
            them as they were.
    """

    def __init__(
        self,
        buffer: Any,
        batch_size: int,
        *,
        view: View | None,
        gamma: float,
        device: torch.device,
        middle: torch.Tensor | None,
        radius: torch.Tensor | None,
        obs_moments: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> None:
        self.buffer = buffer
        self.batch_size = batch_size
        self.view = view
        self.gamma = gamma
        self.device = device
        self.middle = middle
        self.radius = radius
        self.obs_moments = obs_moments
        # A native view fills the same memory every time, which saves allocating it.
        self._out: Any = None
        if getattr(view, "_spec", None) is not None and hasattr(buffer, "batch"):
            self._out = buffer.batch(batch_size, view=view, torch=True)

    def sample(self, seed: int | None = None) -> ReplayBatch:
        """One batch. Its tensors may be overwritten by the next one.

        Args:
            seed: Of the draw; the buffer's own generator when not given.
        """
        given = () if seed is None else (seed,)
        if self._out is not None:
            drawn = self.buffer.sample(self.batch_size, *given, view=self.view, out=self._out)
        elif self.view is not None:
            drawn = self.buffer.sample(self.batch_size, *given, view=self.view)
        else:
            drawn = self.buffer.sample(self.batch_size, *given)
        return self._as_batch(drawn)

    def _as_batch(self, drawn: Any) -> ReplayBatch:
        obs, masks = self._observation(drawn["obs"])
        next_obs, next_masks = self._observation(drawn["next_obs"])
        weights = drawn.get("weights")
        return ReplayBatch(
            obs=obs,
            actions=self._actions(self._tensor(drawn["actions"])),
            rewards=self._tensor(drawn["rewards"]),
            next_obs=next_obs,
            discounts=self._discounts(drawn),
            masks=masks,
            next_masks=next_masks,
            weights=None if weights is None else self._tensor(weights),
            indices=drawn.get("indices"),
        )

    def _observation(self, obs: Any) -> tuple[Any, torch.Tensor | None]:
        tensors = map_leaves(self._tensor, obs)
        if isinstance(tensors, dict) and tensors.keys() == {OBSERVATION, MASK}:
            return tensors[OBSERVATION], tensors[MASK]
        if self.obs_moments is not None:
            mean, std = self.obs_moments
            tensors = (tensors - mean) / std
        return tensors, None

    def _discounts(self, drawn: Any) -> torch.Tensor:
        if "discounts" in drawn:
            return self._tensor(drawn["discounts"])
        return self.gamma * (1.0 - self._tensor(drawn["terminated"]).float())

    def _actions(self, actions: torch.Tensor) -> torch.Tensor:
        if self.radius is not None and self.middle is not None:
            unit: torch.Tensor = (
                actions.reshape(len(actions), -1).float() - self.middle
            ) / self.radius
            return unit
        actions = actions.long()
        return actions if self.middle is None else actions - self.middle

    def _tensor(self, value: Any) -> torch.Tensor:
        return torch.as_tensor(value).to(self.device, non_blocking=True)

    def report(self, batch: ReplayBatch) -> None:
        """Write the new priorities of a batch that was learned from."""
        if batch.indices is None or batch.td_errors is None:
            return
        priorities = batch.td_errors.detach().abs().add(1e-6).cpu().numpy()
        self.buffer.update_priorities(np.asarray(batch.indices), priorities)
