"""Steps of N environments in the native engine, as torch tensors."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from sharpwave.buffers.prioritized import PrioritizedReplayBuffer
from sharpwave.buffers.replay import ReplayBuffer
from sharpwave.buffers.views import Transition
from sharpwave.tensors.buffers.fields import Fields, TensorField
from sharpwave.tensors.buffers.rows import Which, written
from sharpwave.tensors.buffers.transfers import HostBatches, Landing
from sharpwave.types import Array

__all__ = ["NativeRows"]

_STEPS_AT_ONCE = 1024
_WITHOUT_NUMPY = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class NativeRows:
    """A ring of `buffer_size` steps of `num_envs` environments, one native row each.

    The row of environment e at slot t has the index t * num_envs + e.

    Args:
        fields: Fields of a row.
        buffer_size: Steps.
        num_envs: Rows of a step.
        device: Device of batches.
        stratified: Stratify prioritized draws; None without priorities.
        beta: Importance-sampling exponent of prioritized draws.
    """

    def __init__(
        self,
        fields: Fields,
        buffer_size: int,
        num_envs: int,
        device: torch.device,
        *,
        stratified: bool | None = None,
        beta: float = 0.4,
        weight_norm: Literal["buffer", "batch"] = "batch",
    ) -> None:
        self._fields = fields
        self._shape = (buffer_size, num_envs)
        self._capacity = buffer_size * num_envs
        self._names = [f"column_{i}" for i in range(len(fields.names))]
        self._stored = [_stored_dtype(leaf) for leaf in fields.leaves]
        self._priorities: dict[str, Any] | None = None
        if stratified is not None:
            options = {"stratified": stratified, "beta": beta, "weight_norm": weight_norm}
            self._priorities = options
        self._rows = self._make()
        self._pushed = 0
        self._landed = 0
        self._followed: dict[int, Tensor] = {}
        self._landing = Landing(self._push)
        self._batches = HostBatches(fields.leaves, device)
        self._keeps = device.type == "cpu"

    def _make(self) -> ReplayBuffer:
        columns = {
            name: (_numpy_dtype(dtype), leaf.shape)
            for name, dtype, leaf in zip(
                self._names, self._stored, self._fields.leaves, strict=True
            )
        }
        if self._priorities is None:
            return ReplayBuffer(self._capacity, fields=columns)
        # The exponent is in the priorities already.
        return PrioritizedReplayBuffer(
            self._capacity, fields=columns, alpha=1.0, **self._priorities
        )

    def write(self, slot: int, tensors: list[Tensor]) -> None:
        """Put a step into the slot that is next."""
        assert slot == self._pushed % self._shape[0]
        self._pushed += 1
        self._landing.put(tensors)

    def restore(self, columns: list[Tensor], head: int) -> None:
        """Fill slots with steps [steps, num_envs, ...]; the oldest is at slot `head`."""
        self.clear()
        # Slots before the head are written twice, so that the ring stands where it stood.
        for size in (len(columns[0]), head):
            for begin in range(0, size, _STEPS_AT_ONCE):
                part = [column[begin : min(begin + _STEPS_AT_ONCE, size)] for column in columns]
                self._push([tensor.flatten(0, 1).cpu() for tensor in part])
            self._pushed += size

    def clear(self) -> None:
        """Forget all steps; the next one goes into slot 0."""
        self._landing.settle()
        self._rows = self._make()  # its ids begin at 0 again, which are then the indices
        self._pushed = 0
        self._landed = 0
        self._followed = {}

    def sample(
        self, count: int, generator: torch.Generator, out: list[Tensor] | None = None
    ) -> tuple[list[Tensor], Tensor]:
        """Rows drawn with equal chances or by priority, and their indices [count]."""
        tensors, drawn = self._sample(count, generator, out)
        return tensors, torch.from_numpy(self._indices(drawn["indices"]))

    def sample_weighted(
        self, count: int, generator: torch.Generator, out: list[Tensor] | None = None
    ) -> tuple[list[Tensor], Tensor, Tensor]:
        """Rows drawn by priority, their indices [count] and their weights [count]."""
        tensors, drawn = self._sample(count, generator, out)
        indices = torch.from_numpy(self._indices(drawn["indices"]))
        return tensors, indices, torch.from_numpy(drawn["weights"])

    def gather(self, indices: Tensor) -> list[Tensor]:
        """The rows with these indices, on the CPU."""
        self._landing.settle()
        return self._tensors(self._rows.gather(self._ids(indices)))

    def columns(self, which: Which) -> list[Tensor]:
        """Some fields of all rows [buffer_size * num_envs, ...].

        The engine keeps rows, so that fields which are asked for are copied from then on.
        """
        self._landing.settle()
        missing = tuple(i for i in which if i not in self._followed)
        if missing:
            there = torch.arange(min(self._pushed, self._shape[0]) * self._shape[1])
            for i, values in zip(missing, self._some(missing, there), strict=True):
                column = values.new_zeros(self._capacity, *values.shape[1:])
                column[: len(values)] = values
                self._followed[i] = column
        return [self._followed[i] for i in which]

    def rewrite(
        self, which: Which, indices: Tensor, rows: list[Tensor], is_written: Tensor
    ) -> None:
        """Write some fields of the rows with these indices [K] over, where `is_written` [K]."""
        self._landing.settle()
        places = indices[is_written]
        kept = {i: row.cpu()[is_written] for i, row in zip(which, rows, strict=True)}
        arrays = {self._names[i]: row.view(self._stored[i]).numpy() for i, row in kept.items()}
        self._rows.update(self._ids(places), **arrays)
        for i in kept.keys() & self._followed.keys():
            self._followed[i][places] = kept[i]

    def read(self, which: Which, indices: Tensor, out: list[Tensor]) -> None:
        """Write some fields of the rows with these indices into tensors on the output device."""
        self._landing.settle()
        written(self._some(which, indices), out)

    def _some(self, which: Which, indices: Tensor) -> list[Tensor]:
        view = Transition(tuple(self._names[i] for i in which))
        found = self._rows.gather(self._ids(indices), view=view)
        return [self._tensor(i, found) for i in which]

    def set_errors(self, indices: Tensor, errors: Tensor, alpha: float, epsilon: float) -> None:
        """Set the priorities of rows [B] from TD errors [B]."""
        errors = errors.to("cpu", torch.float32)
        self._set_priorities(indices, (errors.abs() + epsilon).pow(alpha))

    def _set_priorities(self, indices: Tensor, priorities: Tensor) -> None:
        self._landing.settle()
        given = priorities.to("cpu", torch.float32).numpy()
        highest = self._rows._engine.max_priority
        self._rows.update_priorities(
            self._ids(indices), np.where(np.isfinite(given), given, np.float32(highest))
        )

    def priorities(self) -> tuple[Tensor, float]:
        """The priorities of all rows in order of their indices, and the highest so far."""
        self._landing.settle()
        saved = self._rows._engine.save_priorities()
        filled = min(self._pushed, self._shape[0]) * self._shape[1]
        return torch.from_numpy(saved["leaves"][:filled].copy()), float(saved["max_priority"])

    def restore_priorities(self, priorities: Tensor, highest: float) -> None:
        """Set what `priorities` returned."""
        if len(priorities) == 0:
            return
        indices = torch.arange(len(priorities))
        # The engine remembers the highest priority it has seen.
        self._set_priorities(indices[:1], torch.tensor([highest]))
        self._set_priorities(indices, priorities)

    def set_beta(self, beta: float) -> None:
        """Set the exponent of the weights."""
        assert self._priorities is not None
        self._priorities["beta"] = beta
        self._rows._engine.beta = beta

    def _sample(
        self, count: int, generator: torch.Generator, out: list[Tensor] | None
    ) -> tuple[list[Tensor], dict[str, Any]]:
        self._landing.settle()
        seed = int(torch.randint(2**63 - 1, (), generator=generator))
        if self._keeps and out is None:
            found = self._rows.sample(count, seed, indices=True)
            return self._tensors(found), found
        drawn: dict[str, Any] = {"indices": np.empty(count, np.uint64)}
        if isinstance(self._rows, PrioritizedReplayBuffer):
            drawn["weights"] = np.empty(count, np.float32)

        def write(tensors: list[Tensor]) -> None:
            for name, dtype, tensor in zip(self._names, self._stored, tensors, strict=True):
                drawn[name] = tensor.view(dtype)
            self._rows.sample(count, seed, out=drawn, indices=True)

        if self._keeps and out is not None:
            write(out)
            return out, drawn
        brought = self._batches.bring((count,), write)
        return (brought if out is None else written(brought, out)), drawn

    def _push(self, tensors: list[Tensor]) -> None:
        arrays = {
            name: (tensor if tensor.dtype is dtype else tensor.contiguous().view(dtype)).numpy()
            for name, dtype, tensor in zip(self._names, self._stored, tensors, strict=True)
        }
        self._rows.push_batch(**arrays)
        begin = self._landed % self._capacity
        self._landed += len(tensors[0])
        for i, column in self._followed.items():
            column[begin : begin + self._shape[1]] = tensors[i]

    def _tensors(self, batch: dict[str, Any]) -> list[Tensor]:
        return [self._tensor(i, batch) for i in range(len(self._names))]

    def _tensor(self, i: int, batch: dict[str, Any]) -> Tensor:
        tensor = torch.from_numpy(batch[self._names[i]])
        dtype = self._fields.leaves[i].dtype
        return tensor if tensor.dtype is dtype else tensor.view(dtype)

    def _indices(self, ids: Array) -> Array:
        return ids.astype(np.int64) % self._capacity

    def _ids(self, indices: Tensor) -> Array:
        """The ids of the rows that are now at these indices."""
        head = self._pushed * self._shape[1]
        places = indices.cpu().numpy().astype(np.int64)
        filled = min(head, self._capacity)
        if len(places) and not (places.min() >= 0 and places.max() < filled):
            raise IndexError(
                f"indices must be from 0 to {filled - 1}, got {places.min()} to {places.max()}"
            )
        rounds = (head - 1 - places) // self._capacity
        ids: Array = (places + rounds * self._capacity).astype(np.uint64)
        return ids


def _stored_dtype(field: TensorField) -> torch.dtype:
    """The dtype, or an integer of its size where NumPy lacks it."""
    try:
        torch.empty(0, dtype=field.dtype).numpy()
    except TypeError:
        pass
    else:
        if not field.dtype.is_complex:
            return field.dtype
    stored = _WITHOUT_NUMPY.get(field.dtype.itemsize)
    if stored is None:
        raise TypeError(f"fields of dtype {field.dtype} cannot be stored on the CPU")
    return stored


def _numpy_dtype(dtype: torch.dtype) -> str:
    return torch.empty(0, dtype=dtype).numpy().dtype.name
