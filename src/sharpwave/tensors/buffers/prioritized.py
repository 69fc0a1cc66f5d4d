"""Prioritized experience replay as torch tensors (Schaul et al., 2016)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from sharpwave.buffers.prioritized import check_exponent, check_weight_norm
from sharpwave.buffers.views import NStep
from sharpwave.primitives.priorities.tensors import PrioritySums
from sharpwave.tensors.buffers.base import ResetStrategy
from sharpwave.tensors.buffers.fields import Fields
from sharpwave.tensors.buffers.native_rows import NativeRows
from sharpwave.tensors.buffers.replay import TensorReplayBatch, TensorReplayBuffer
from sharpwave.tensors.buffers.rows import Rows, TensorColumns, written
from sharpwave.tensors.buffers.statistics import StatsTracker
from sharpwave.tensors.buffers.transfers import to_device

__all__ = ["TensorPrioritizedReplayBatch", "TensorPrioritizedReplayBuffer"]


@dataclass
class TensorPrioritizedReplayBatch(TensorReplayBatch):
    """Transitions drawn by priority, B of them.

    Attributes:
        indices: [B] int64, slot * num_envs + environment, for `update_priorities`.
        weights: [B] float32, at most 1; with `weight_norm="batch"` the largest is 1.
    """

    indices: Tensor
    weights: Tensor


class WeightedRows(Rows, Protocol):
    """Rows with priorities; new ones get the highest so far."""

    def sample_weighted(
        self, count: int, generator: torch.Generator, out: list[Tensor] | None = None
    ) -> tuple[list[Tensor], Tensor, Tensor]:
        """Rows drawn by priority (in `out` if given), their indices and weights [count]."""

    def set_errors(self, indices: Tensor, errors: Tensor, alpha: float, epsilon: float) -> None:
        """Set the priorities of rows [B] from TD errors [B]."""

    def priorities(self) -> tuple[Tensor, float]:
        """The priorities of all rows in order of their indices, and the highest so far."""

    def restore_priorities(self, priorities: Tensor, highest: float) -> None:
        """Set what `priorities` returned."""

    def set_beta(self, beta: float) -> None:
        """Set the exponent of the weights."""


class PrioritizedColumns(TensorColumns):
    """Steps as one tensor per field, with priorities beside them on the device.

    Args:
        fields: Fields of a row.
        buffer_size: Steps.
        num_envs: Rows of a step.
        store_device: Storage device of the tensors.
        device: Device of batches.
        stratified: Stratify draws.
        beta: Importance-sampling exponent.
        weight_norm: Normalize weights by their maximum over the "batch" or the "buffer".
    """

    def __init__(
        self,
        fields: Fields,
        buffer_size: int,
        num_envs: int,
        store_device: torch.device,
        device: torch.device,
        *,
        stratified: bool,
        beta: float,
        weight_norm: Literal["buffer", "batch"],
    ) -> None:
        super().__init__(fields, buffer_size, num_envs, store_device, device)
        self._n_rows = buffer_size * num_envs
        self._stratified = stratified
        self._beta = beta
        self._of_batch = weight_norm == "batch"
        self.clear()

    def write(self, slot: int, tensors: list[Tensor]) -> None:
        """Put a step into a slot, with the highest priority so far."""
        super().write(slot, tensors)
        self._sums.fill(slot * self._num_envs, (slot + 1) * self._num_envs)

    def clear(self) -> None:
        """Forget all steps and priorities."""
        super().clear()
        self._sums = PrioritySums(self._n_rows, self._store_device)

    def sample_weighted(
        self, count: int, generator: torch.Generator, out: list[Tensor] | None = None
    ) -> tuple[list[Tensor], Tensor, Tensor]:
        """Rows drawn by priority (in `out` if given), their indices and weights [count]."""
        indices, probabilities = self._sums.sample(
            count, generator=generator, stratified=self._stratified
        )
        weights = self._sums.weights(probabilities, self._beta, of_batch=self._of_batch)
        return self.fetch(indices, out), indices, weights

    def set_errors(self, indices: Tensor, errors: Tensor, alpha: float, epsilon: float) -> None:
        """Set the priorities of rows [B] from TD errors [B]."""
        indices = to_device(indices, self._store_device)
        self._sums.set_errors(indices, to_device(errors, self._store_device), alpha, epsilon)

    def priorities(self) -> tuple[Tensor, float]:
        """The priorities of all rows in order of their indices, and the highest so far."""
        filled = self._filled * self._num_envs
        return self._sums.priorities[:filled], float(self._sums.highest)

    def restore_priorities(self, priorities: Tensor, highest: float) -> None:
        """Set what `priorities` returned."""
        there = torch.zeros(self._n_rows, device=self._store_device)
        there[: len(priorities)] = priorities
        self._sums.load_state_dict({"priorities": there, "highest": highest})

    def set_beta(self, beta: float) -> None:
        """Set the exponent of the weights."""
        self._beta = beta


class TensorPrioritizedReplayBuffer(TensorReplayBuffer):
    """A `TensorReplayBuffer` with prioritized sampling and importance-sampling weights.

        P(i) = p_i / Σ p_j  with  p = (|td_error| + ε)^α
        weights_i = (N P(i))^-β / max_j (N P(j))^-β

    New steps get the highest p so far. Priorities belong to places: those for a step that was
    overwritten since it was drawn go to the step in its place.

    Args:
        buffer_size: As in `TensorReplayBuffer`.
        num_envs: As in `TensorReplayBuffer`.
        obs_shape: As in `TensorReplayBuffer`.
        action_shape: As in `TensorReplayBuffer`.
        stats_tracker: As in `TensorReplayBuffer`.
        alpha: Priority exponent α of TD errors; 0 draws uniformly.
        beta: Importance-sampling exponent β; 1 corrects fully. Settable, to be annealed.
        epsilon: Added to absolute TD errors, so that an error of 0 has a priority too.
        obs_dtype: As in `TensorReplayBuffer`.
        action_dtype: As in `TensorReplayBuffer`.
        device: As in `TensorReplayBuffer`.
        store_device: As in `TensorReplayBuffer`.
        reset_strategy: As in `TensorReplayBuffer`.
        stratified: One draw from each of batch_size equal parts of the total, instead of
            independent draws.
        weight_norm: The maximum in the weights is over the "batch", or over the "buffer" (as in the
            paper, and as runs have it).
        extra_fields: As in `TensorReplayBuffer`.
        seed: As in `TensorReplayBuffer`.
        generator: As in `TensorReplayBuffer`.

    Example:
        >>> buffer = TensorPrioritizedReplayBuffer(100, num_envs=2, obs_shape=(), action_shape=())
        >>> ones, ended = torch.ones(2), torch.tensor([False, False])
        >>> buffer.add(ones, ones, ones, ended, ones)
        >>> batch = buffer.get(2)
        >>> batch.indices.tolist(), batch.weights.tolist()
        ([0, 1], [1.0, 1.0])
        >>> buffer.update_priorities(batch.indices, torch.tensor([0.5, -2.0]))
    """

    def __init__(
        self,
        buffer_size: int,
        num_envs: int,
        obs_shape: Any,
        action_shape: Any,
        stats_tracker: StatsTracker | None = None,
        alpha: float = 0.6,
        beta: float = 0.4,
        epsilon: float = 1e-6,
        obs_dtype: Any = torch.float32,
        action_dtype: Any = torch.float32,
        device: torch.device | str = "cpu",
        store_device: torch.device | str | None = None,
        reset_strategy: ResetStrategy = ResetStrategy.RECURRENT,
        *,
        stratified: bool = True,
        weight_norm: Literal["buffer", "batch"] = "batch",
        extra_fields: Mapping[str, Any] | None = None,
        seed: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        self.alpha = check_exponent("alpha", alpha)
        self.epsilon = check_exponent("epsilon", epsilon)
        if self.epsilon == 0.0:
            raise ValueError("epsilon must be positive, got 0.0")
        self.stratified = bool(stratified)
        self.weight_norm = check_weight_norm(weight_norm)
        self._beta = check_exponent("beta", beta)
        super().__init__(
            buffer_size,
            num_envs,
            obs_shape,
            action_shape,
            stats_tracker,
            obs_dtype,
            action_dtype,
            device,
            store_device,
            reset_strategy,
            extra_fields=extra_fields,
            seed=seed,
            generator=generator,
        )

    def _make_rows(self) -> WeightedRows:
        places = (self.fields, self.buffer_size, self.num_envs)
        options: dict[str, Any] = {
            "stratified": self.stratified,
            "beta": self._beta,
            "weight_norm": self.weight_norm,
        }
        if self.store_device.type == "cpu":
            return NativeRows(*places, self.device, **options)
        return PrioritizedColumns(*places, self.store_device, self.device, **options)

    @property
    def _weighted(self) -> WeightedRows:
        rows: Any = self._rows
        found: WeightedRows = rows
        return found

    @property
    def beta(self) -> float:
        """Importance-sampling exponent β; 1 corrects fully."""
        return self._beta

    @beta.setter
    def beta(self, beta: float) -> None:
        self._beta = check_exponent("beta", beta)
        self._weighted.set_beta(self._beta)

    def get(
        self, batch_size: int, *, view: NStep | None = None, out: Any = None
    ) -> TensorPrioritizedReplayBatch:
        """Draw transitions by priority, with replacement.

        Args:
            batch_size: Batch size, at most the number of steps in the buffer.
            view: `NStep(n, gamma)` for n-step transitions (see `TensorReplayBuffer.get`).
            out: A batch of this buffer, view and size to overwrite, instead of a new one.

        Raises:
            ValueError: There are fewer steps in the buffer, or `out` is another kind of batch.
            TypeError: `view` is another one.
        """
        self._check_batch(batch_size)
        self._check_view(view, out)
        if out is not None:
            targets = self._tensors_of(out, batch_size)
            drawn = self._weighted.sample_weighted(batch_size, self.generator, targets)
            written(list(drawn[1:]), [out.indices, out.weights])
            self._see_ahead(view, targets, drawn[1], out.discounts)
            found: TensorPrioritizedReplayBatch = out
            return found
        tensors, indices, weights = self._weighted.sample_weighted(batch_size, self.generator)
        discounts = self._see_ahead(view, tensors, indices)
        return TensorPrioritizedReplayBatch(
            **self._columns(tensors),
            indices=to_device(indices, self.device),
            weights=to_device(weights, self.device),
            discounts=discounts,
        )

    def update_priorities(self, indices: Any, td_errors: Any) -> None:
        """Set the priorities of drawn steps.

        Args:
            indices: [B], those of a batch. Where one occurs twice, the later TD error counts.
            td_errors: [B], of either sign; one that is not finite counts as the highest so far.

        Raises:
            ValueError: The shapes differ.
            IndexError: An index is not in the buffer (where it is known without waiting for a
                device).
        """
        places = torch.as_tensor(indices).detach().reshape(-1).to(torch.int64)
        errors = torch.as_tensor(td_errors).detach()
        if errors.numel() != len(places):
            raise ValueError(
                f"td_errors must have shape ({len(places)},), got {tuple(errors.shape)}"
            )
        self._weighted.set_errors(places, errors.reshape(-1), self.alpha, self.epsilon)

    def state_dict(self) -> dict[str, Any]:
        """The steps and priorities, where the ring stands and the generator, as tensors."""
        priorities, highest = self._weighted.priorities()
        return {
            **super().state_dict(),
            "priorities": priorities,
            "highest_priority": highest,
            "beta": self.beta,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict` (see `TensorReplayBuffer.load_state_dict`)."""
        priorities = torch.as_tensor(state["priorities"]).to(torch.float32)
        expected = min(int(state["steps"]), self.buffer_size) * self.num_envs
        if priorities.shape != (expected,):
            raise ValueError(
                f"priorities must have shape ({expected},), got {tuple(priorities.shape)}"
            )
        super().load_state_dict(state)
        self._weighted.restore_priorities(priorities, float(state["highest_priority"]))
        self.beta = float(state["beta"])

    def _options(self) -> dict[str, Any]:
        return {
            **super()._options(),
            "alpha": self.alpha,
            "beta": self.beta,
            "epsilon": self.epsilon,
            "stratified": self.stratified,
            "weight_norm": self.weight_norm,
        }
