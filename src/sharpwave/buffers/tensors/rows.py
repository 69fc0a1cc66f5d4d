"""Where steps of N environments are kept: one tensor per field, or the native engine."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from sharpwave.buffers.tensors.copies import HostBatches, to_device
from sharpwave.buffers.tensors.fields import Fields
from sharpwave.kernels.rows import gather_rows, push_rows

__all__ = ["Columns", "Rows", "gather_any"]

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_KNOWN = frozenset(
    {
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    }
)
"""The dtypes that kernels know; of others they move the bits."""


class Rows(Protocol):
    """A ring of steps. The row of environment e at slot t has the index t * num_envs + e."""

    def write(self, slot: int, tensors: list[Tensor]) -> None:
        """Put a step into a slot."""

    def restore(self, columns: list[Tensor], head: int) -> None:
        """Fill slots with steps [steps, num_envs, ...]; the oldest is at slot `head`."""

    def clear(self) -> None:
        """Forget all steps."""

    def sample(self, count: int, generator: torch.Generator) -> tuple[list[Tensor], Tensor]:
        """Rows drawn with equal chances, on the output device, and their indices [count]."""

    def gather(self, indices: Tensor) -> list[Tensor]:
        """The rows with these indices, on the storage device."""


class Columns:
    """Steps as one tensor [buffer_size * num_envs, ...] per field.

    On CUDA a step is written in one launch and a batch is read in another, and nothing waits for
    the device.

    Args:
        fields: Of a row.
        buffer_size: Steps.
        num_envs: Rows of a step.
        store_device: Where the tensors are.
        device: Where batches go.
        tensors: The tensors, if they exist already.
    """

    def __init__(
        self,
        fields: Fields,
        buffer_size: int,
        num_envs: int,
        store_device: torch.device,
        device: torch.device,
        tensors: list[Tensor] | None = None,
    ) -> None:
        n_rows = buffer_size * num_envs
        pinned = tensors is None and store_device.type == "cpu" and device.type == "cuda"
        self.tensors = tensors or [
            torch.zeros(
                (n_rows, *leaf.shape), dtype=leaf.dtype, device=store_device, pin_memory=pinned
            )
            for leaf in fields.leaves
        ]
        self._pinned = pinned
        if pinned:
            self._landed = torch.cuda.Event()
        self._num_envs = num_envs
        self._store_device = store_device
        self._device = device
        self._slot = torch.zeros((), dtype=torch.int64, device=store_device)
        self._filled = 0
        self._batches: HostBatches | None = None
        if store_device.type == "cpu" and device.type != "cpu":
            self._batches = HostBatches(fields.leaves, device)

    def write(self, slot: int, tensors: list[Tensor]) -> None:
        """Put a step into a slot."""
        self._filled = max(self._filled, slot + 1)
        if self._store_device.type == "cuda":
            here = [to_device(tensor, self._store_device).contiguous() for tensor in tensors]
            push_rows(_as_bits(self.tensors), _as_bits(here), self._slot.fill_(slot))
            return
        begin, end = slot * self._num_envs, (slot + 1) * self._num_envs
        for column, tensor in zip(self.tensors, tensors, strict=True):
            column[begin:end].copy_(tensor, non_blocking=self._pinned)
        if self._pinned:
            self._landed.record()

    def settle(self) -> None:
        """Wait for steps that are on their way from a device."""
        if self._pinned:
            self._landed.synchronize()

    def restore(self, columns: list[Tensor], head: int) -> None:  # noqa: ARG002
        """Fill slots with steps [steps, num_envs, ...]; the oldest is at slot `head`."""
        self._filled = len(columns[0])
        for mine, given in zip(self.tensors, columns, strict=True):
            mine[: self._filled * self._num_envs] = given.flatten(0, 1).to(mine.device)

    def clear(self) -> None:
        """Forget all steps."""
        self._filled = 0

    def sample(self, count: int, generator: torch.Generator) -> tuple[list[Tensor], Tensor]:
        """Rows drawn with equal chances, on the output device, and their indices [count]."""
        indices = torch.randint(
            self._filled * self._num_envs,
            (count,),
            generator=generator,
            device=self._store_device,
        )
        return self.fetch(indices), indices

    def fetch(self, indices: Tensor) -> list[Tensor]:
        """The rows with these indices, on the output device."""
        if self._batches is None:
            return [t.to(self._device) for t in self.gather(indices)]
        self.settle()
        return self._batches.bring(
            (len(indices),), lambda out: gather_any(self.tensors, indices, out)
        )

    def send(self, rows: list[Tensor]) -> list[Tensor]:
        """Rows that lie on the storage device, on the output device."""
        if self._batches is None:
            return [row.to(self._device) for row in rows]
        return self._batches.bring(
            (len(rows[0]),),
            lambda out: [to.copy_(row) for to, row in zip(out, rows, strict=True)],
        )

    def gather(self, indices: Tensor) -> list[Tensor]:
        """The rows with these indices, on the storage device."""
        self.settle()
        return gather_any(self.tensors, to_device(indices, self._store_device))


def gather_any(
    columns: list[Tensor], indices: Tensor, out: list[Tensor] | None = None
) -> list[Tensor]:
    """`gather_rows` of columns of any dtype."""
    if out is not None:
        gather_rows(_as_bits(columns), indices, _as_bits(out))
        return out
    return [
        row if row.dtype is column.dtype else row.view(column.dtype)
        for row, column in zip(gather_rows(_as_bits(columns), indices), columns, strict=True)
    ]


def _as_bits(tensors: list[Tensor]) -> list[Tensor]:
    return [
        tensor if tensor.dtype in _KNOWN else tensor.view(_bits(tensor.dtype)) for tensor in tensors
    ]


def _bits(dtype: torch.dtype) -> torch.dtype:
    found = _BITS.get(dtype.itemsize)
    if found is None:
        raise TypeError(f"fields of dtype {dtype} cannot be stored on a device")
    return found
