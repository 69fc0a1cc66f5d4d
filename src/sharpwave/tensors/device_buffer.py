"""Replay on the device that learns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sharpwave.buffers.schema import STEP, Field, Schema
from sharpwave.buffers.views import NStep, Sequence
from sharpwave.core.lazy import torch
from sharpwave.core.tree import like, map_leaves, numbered
from sharpwave.types import Nested

if TYPE_CHECKING:
    from torch import Tensor

    from sharpwave.config.off_policy import ReplayConfig

__all__ = ["DeviceBuffer"]


class DeviceBuffer:
    """A `TensorReplayBuffer`, or a prioritized one, as the buffer of a run.

    Steps go to the device once, and batches never leave it. They lie at one address, where a CUDA
    graph finds them: a batch is gone when the next one is drawn.

    Args:
        schema: The fields of a step.
        config: Of the algorithm.
        n_envs: Number of environments.
        device: Its device.
        seed: Of the draws.

    Attributes:
        tensors: The buffer itself.
    """

    def __init__(
        self, schema: Schema, config: ReplayConfig, n_envs: int, device: Any, seed: int
    ) -> None:
        from sharpwave.tensors.buffers import TensorPrioritizedReplayBuffer, TensorReplayBuffer

        self._obs = schema.fields["obs"]
        action: Any = schema.fields["action"]
        obs = numbered(self._obs)
        extra: dict[str, Any] = {k: x for k, x in schema.fields.items() if k not in STEP}
        options: dict[str, Any] = {
            "buffer_size": max(1, config.buffer_size // n_envs),
            "num_envs": n_envs,
            "obs_shape": map_leaves(lambda field: field.shape, obs),
            "action_shape": action.shape,
            "obs_dtype": map_leaves(_dtype, obs),
            "action_dtype": _dtype(action),
            "device": device,
            "extra_fields": {k: (_exact_dtype(x), x.shape) for k, x in extra.items()},
            "seed": seed % 2**63,
        }
        draws = config.draws
        self.is_prioritized = draws.prioritized
        self.tensors: Any
        if draws.prioritized:
            options.update(alpha=draws.alpha, beta=draws.beta_start, weight_norm=draws.weight_norm)
            self.tensors = TensorPrioritizedReplayBuffer(**options)
        else:
            self.tensors = TensorReplayBuffer(**options)
        self._view = NStep(draws.n_step, config.gamma) if draws.n_step > 1 else None
        self._drawn: Any = None
        self._batch: dict[str, Any] = {}

    def __len__(self) -> int:
        size: int = self.tensors.total_current_size
        return size

    @property
    def is_full(self) -> bool:
        """True once the buffer is full: new steps overwrite the oldest."""
        full: bool = self.tensors.full
        return full

    def push_batch(
        self,
        *,
        obs: Nested,
        actions: Nested,
        rewards: Any,
        terminated: Any,
        truncated: Any,
        next_obs: Nested,
        restarted: bool,
        **extra: Any,
    ) -> None:
        """Put one step of every environment into the buffer, [N, ...] each.

        `restarted` says that the environments were reset before it.
        """
        if restarted:
            self.tensors.cut()
        self.tensors.add(
            numbered(obs),
            actions,
            rewards,
            terminated | truncated,
            numbered(next_obs),
            truncated & ~terminated,
            **extra,
        )

    def sample(self, batch_size: int, *, view: Sequence | None = None) -> dict[str, Any]:
        """A batch of tensors on the device: steps, or what a view of sequences makes of them."""
        if view is not None:
            return self.sample_windows(batch_size, view)  # type: ignore[no-any-return]
        drawn = self._drawn
        if drawn is not None and len(drawn.rewards) == batch_size:
            self.tensors.get(batch_size, view=self._view, out=drawn)
        else:
            self._drawn = drawn = self.tensors.get(batch_size, view=self._view)
            self._batch = {
                "obs": like(self._obs, drawn.observations),
                "actions": drawn.actions,
                "rewards": drawn.rewards,
                "next_obs": like(self._obs, drawn.next_observations),
                **drawn.extras,
            }
            if self._view is None:
                self._batch["terminated"] = torch.empty_like(drawn.dones)
            else:
                self._batch["discounts"] = drawn.discounts
            if self.is_prioritized:
                self._batch.update(weights=drawn.weights, indices=drawn.indices)
        if self._view is None:  # ended, and not by being cut
            torch.gt(drawn.dones, drawn.truncateds, out=self._batch["terminated"])
        return self._batch

    def sample_windows(self, batch_size: int, view: Sequence, *, generator: Any = None) -> Any:
        """Windows of tensors on the device, by the names that `ReplayBuffer.sample` gives.

        Nothing waits for the device, so that a captured gradient step may draw for itself.

        Args:
            batch_size: Number of windows.
            view: `Sequence(length, context=..., arrivals=True, cross=True)`.
            generator: Draws instead of the buffer's own: one that a CUDA graph knows.
        """
        drawn = self.tensors.get_windows(batch_size, view, generator=generator)
        return {
            "obs": like(self._obs, drawn.observations),
            "prev_actions": drawn.prev_actions,
            "rewards": drawn.rewards,
            **drawn.extras,
            "is_first": drawn.is_first,
            "is_last": drawn.is_last,
            "is_terminal": drawn.is_terminal,
            "indices": drawn.indices,
        }

    def update(self, indices: Any, **columns: Any) -> None:
        """Write columns of the learner's own over, by the `indices` of windows."""
        self.tensors.update(indices, **columns)

    def update_priorities(self, indices: Any, errors: Tensor) -> None:
        """Set the priorities of steps by their new errors."""
        self.tensors.update_priorities(indices, errors)

    def set_beta(self, beta: float) -> None:
        """Set how much weights correct for priorities."""
        self.tensors.beta = beta

    def state_dict(self) -> dict[str, Any]:
        """Everything, as arrays."""
        return {"kind": "device", "tensors": map_leaves(_array, self.tensors.state_dict())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`; columns that are not asked for stay behind."""
        tensors = map_leaves(_tensor, state["tensors"])
        known = self.tensors.fields.names
        tensors["fields"] = {k: x for k, x in tensors["fields"].items() if k in known}
        self.tensors.load_state_dict(tensors)


def _dtype(field: Field) -> Any:
    return torch.float32 if np.dtype(field.dtype).kind == "f" else _exact_dtype(field)


def _exact_dtype(field: Field) -> Any:
    return torch.from_numpy(np.empty(0, field.dtype)).dtype


def _array(leaf: Any) -> Any:
    return leaf.detach().cpu().numpy() if isinstance(leaf, torch.Tensor) else leaf


def _tensor(leaf: Any) -> Any:
    return torch.from_numpy(np.array(leaf)) if isinstance(leaf, np.ndarray) else leaf
