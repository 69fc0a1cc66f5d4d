"""Batches of a replay buffer as tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sharpwave.collect.off_policy import MASK, OBSERVATION
from sharpwave.lazy import torch
from sharpwave.nest import leaves, map_leaves
from sharpwave.train.staging import Staging

if TYPE_CHECKING:
    from sharpwave.buffers.views import View
    from sharpwave.train.array_sampler import ArrayNormalizer
    from sharpwave.train.tensor_normalizer import TensorNormalizer

INDICES = "indices"


@dataclass
class ReplayBatch:
    """Steps to learn from; the target of a value function is rewards + discounts · V(next_obs).

    What it holds are tensors, or arrays for native code.

    Attributes:
        obs: [B, ...], nested where the space is.
        actions: [B, d] in [-1, 1], or [B, ...] whole numbers from 0 on.
        rewards: [B], summed over the steps of an n-step transition.
        next_obs: [B, ...] what the last of these steps led to.
        discounts: [B] γ^m after m steps, 0 where the episode terminated.
        masks: [B, n] actions allowed at `obs`; None where all are.
        next_masks: [B, n] the same at `next_obs`.
        next_actions: [B, d] what was done at `next_obs`, for those who ask for it.
        weights: [B] of prioritised draws, None elsewhere.
        indices: Ids of the steps in a prioritised buffer.
        td_errors: [B] set by the gradient step, to become priorities.
    """

    obs: Any
    actions: Any
    rewards: Any
    next_obs: Any
    discounts: Any
    masks: Any = None
    next_masks: Any = None
    next_actions: Any = None
    weights: Any = None
    indices: Any = None
    td_errors: Any = None


class ReplaySampler:
    """Draws batches of a buffer for a learner.

    Args:
        buffer: One of ours, or anything with `sample(batch_size)` that gives the same entries.
        batch_size: Steps in a batch.
        view: What a step becomes; None for a buffer that is not ours.
        gamma: Discount, for views that do not apply it.
        device: Where the tensors go; None for arrays.
        middle: [d] of continuous actions; what is subtracted from whole numbers.
        radius: [d] of continuous actions, None for whole numbers.
        obs_moments: Mean and deviation that observations are normalised by; None to leave them.
        has_masks: Whether observations are stored with the masks of their actions.
        normalizer: Of batches of raw steps.
        reward_form: What rewards are multiplied by, and what is added then; None to leave them.
    """

    def __init__(
        self,
        buffer: Any,
        batch_size: int,
        *,
        view: View | None,
        gamma: float,
        device: Any,
        middle: Any,
        radius: Any,
        obs_moments: tuple[Any, Any] | None = None,
        has_masks: bool = False,
        normalizer: TensorNormalizer | ArrayNormalizer | None = None,
        reward_form: tuple[float, float] | None = None,
    ) -> None:
        self.buffer = buffer
        self.batch_size = batch_size
        self.view = view
        self.gamma = gamma
        self.device = device
        self.middle = middle
        self.radius = radius
        self._is_unit = (
            radius is not None
            and middle is not None
            and bool((radius == 1).all())
            and not bool(middle.any())
        )
        self.obs_moments = obs_moments
        self.has_masks = has_masks
        self.normalizer = normalizer
        self.reward_form = reward_form
        self._staging: Staging | None = None
        self._ids: Any = None
        # A native view fills the same memory every time, which saves allocating it.
        self._out: Any = None
        if getattr(view, "_spec", None) is not None and hasattr(buffer, "batch"):
            self._reserve()

    def sample(self, seed: int | None = None) -> ReplayBatch:
        """One batch. Its tensors may be overwritten by the next one.

        Args:
            seed: Of the draw; the buffer's own generator when not given.
        """
        return self.as_batch(self.draw(seed))

    def draw(self, seed: int | None = None) -> dict[str, Any]:
        """A batch as the buffer has it, as tensors on the device; `as_batch` makes the rest of it.

        On a CUDA device all batches lie at one address.
        """
        given = () if seed is None else (seed,)
        if self._out is not None:
            self.buffer.sample(self.batch_size, *given, view=self.view, out=self._out)
            return self._out  # type: ignore[no-any-return]
        if self._ids is not None:
            assert self._staging is not None
            out = {**self._staging.memory(), **self._ids}
            self.buffer.sample(self.batch_size, *given, view=self.view, out=out)
            return {**self._staging.send(), **self._ids}
        options = {} if self.view is None else {"view": self.view}
        drawn = self.buffer.sample(self.batch_size, *given, **options)
        return self._brought(dict(drawn))

    def _reserve(self) -> None:
        """Make the memory that batches are drawn into."""
        if self.device.type == "cpu":
            self._out = self.buffer.batch(self.batch_size, view=self.view, torch=True)
        else:
            self._stage(self.buffer.batch(self.batch_size, view=self.view))

    def _brought(self, drawn: dict[str, Any]) -> dict[str, Any]:
        ids = {name: drawn.pop(name) for name in (INDICES,) if name in drawn}
        if self.device.type == "cpu" or _is_there(drawn, self.device):
            return {**map_leaves(self._tensor, drawn), **ids}
        arrays = map_leaves(np.asarray, drawn)
        if self._staging is None:
            self._staging = Staging(arrays, self.device)
        return {**self._staging.bring(arrays), **ids}

    def _stage(self, example: dict[str, Any]) -> None:
        """Have batches like this one drawn straight into page-locked memory."""
        columns = dict(example)
        self._ids = {name: columns.pop(name) for name in (INDICES,) if name in columns}
        self._staging = Staging(columns, self.device)

    def as_batch(self, drawn: dict[str, Any]) -> ReplayBatch:
        """What `draw` gave, in the form that learners want."""
        obs, masks = self._observation(drawn["obs"])
        next_obs, next_masks = self._observation(drawn["next_obs"])
        rewards = drawn["rewards"]
        if self.normalizer is not None:
            rewards = self.normalizer.rewards(rewards)
        if self.reward_form is not None:
            scale, shift = self.reward_form
            rewards = rewards * scale + shift
        return ReplayBatch(
            obs=obs,
            actions=self._actions(drawn["actions"]),
            rewards=rewards,
            next_obs=next_obs,
            discounts=self._discounts(drawn),
            masks=masks,
            next_masks=next_masks,
            next_actions=self._actions(drawn["next_actions"]) if "next_actions" in drawn else None,
            weights=drawn.get("weights"),
            indices=drawn.get(INDICES),
        )

    def _observation(self, obs: Any) -> tuple[Any, torch.Tensor | None]:
        masks = None
        if self.has_masks:
            obs, masks = obs[OBSERVATION], obs[MASK]
        if self.normalizer is not None:
            obs = self.normalizer.obs(obs)
        elif self.obs_moments is not None:
            mean, std = self.obs_moments
            obs = (obs - mean) / std
        return obs, masks

    def _discounts(self, drawn: Any) -> torch.Tensor:
        if "discounts" in drawn:
            discounts: torch.Tensor = drawn["discounts"]
        else:
            discounts = self.gamma * (1.0 - drawn["terminated"].float())
        return discounts

    def _actions(self, actions: torch.Tensor) -> torch.Tensor:
        if self.radius is not None and self.middle is not None:
            rows = actions.reshape(len(actions), -1).float()
            return rows if self._is_unit else (rows - self.middle) / self.radius
        actions = actions.long()
        return actions if self.middle is None else actions - self.middle

    def _tensor(self, value: Any) -> torch.Tensor:
        return torch.as_tensor(value, device=self.device)

    def report(self, batch: ReplayBatch) -> None:
        """Write the new priorities of a batch that was learned from."""
        if batch.indices is None or batch.td_errors is None:
            return
        if isinstance(batch.indices, torch.Tensor):  # a buffer on the device
            self.buffer.update_priorities(batch.indices, batch.td_errors.detach())
            return
        priorities = batch.td_errors.detach().abs().add(1e-6).cpu().numpy()
        self.buffer.update_priorities(np.asarray(batch.indices), priorities)


def _is_there(drawn: dict[str, Any], device: torch.device) -> bool:
    """Whether a buffer keeps its steps on the device already."""
    _, leaf = next(leaves(drawn))
    return getattr(leaf, "device", None) == device
