"""Storage of steps of N environments: one tensor per field, or the native engine."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from sharpwave.primitives.rows.tensors import RowTable
from sharpwave.tensors.buffers.fields import Fields
from sharpwave.tensors.buffers.transfers import HostBatches, to_device

__all__ = ["Rows", "Table", "TensorColumns", "Which", "written"]

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_KNOWN = frozenset(
    {
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    }
)
"""The dtypes that kernels know."""


Which = tuple[int, ...]
"""Places of some fields among all."""


class Rows(Protocol):
    """A ring of steps. The row of environment e at slot t has the index t * num_envs + e."""

    def write(self, slot: int, tensors: list[Tensor]) -> None:
        """Put a step into a slot."""

    def restore(self, columns: list[Tensor], head: int) -> None:
        """Fill slots with steps [steps, num_envs, ...]; the oldest is at slot `head`."""

    def clear(self) -> None:
        """Forget all steps."""

    def sample(
        self, count: int, generator: torch.Generator, out: list[Tensor] | None = None
    ) -> tuple[list[Tensor], Tensor]:
        """Rows drawn with equal chances, on the output device, and their indices [count].

        The rows are written into `out` if given.
        """

    def gather(self, indices: Tensor) -> list[Tensor]:
        """The rows with these indices, on the storage device."""

    def columns(self, which: Which) -> list[Tensor]:
        """Some fields of all rows [buffer_size * num_envs, ...], on the storage device."""

    def rewrite(
        self, which: Which, indices: Tensor, rows: list[Tensor], is_written: Tensor
    ) -> None:
        """Write some fields of the rows with these indices [K] over, where `is_written` [K].

        Those indices are all different, and on the storage device.
        """

    def read(self, which: Which, indices: Tensor, out: list[Tensor]) -> None:
        """Write some fields of the rows with these indices into tensors on the output device."""


class TensorColumns:
    """Steps as one tensor [buffer_size * num_envs, ...] per field.

    On CUDA a step is written in one launch and a batch is read in another, and nothing waits for
    the device.

    Args:
        fields: Fields of a row.
        buffer_size: Steps.
        num_envs: Rows of a step.
        store_device: Storage device of the tensors.
        device: Device of batches.
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
        self._table = Table(self.tensors)
        self._parts: dict[Which, Table] = {}
        self._filled = 0
        self._batches: HostBatches | None = None
        if store_device.type == "cpu" and device.type != "cpu":
            self._batches = HostBatches(fields.leaves, device)

    def write(self, slot: int, tensors: list[Tensor]) -> None:
        """Put a step into a slot."""
        self._filled = max(self._filled, slot + 1)
        if self._store_device.type == "cuda":
            device = self._store_device
            self._table.push([to_device(x, device).contiguous() for x in tensors], slot)
            return
        begin, end = slot * self._num_envs, (slot + 1) * self._num_envs
        for column, tensor in zip(self.tensors, tensors, strict=True):
            column[begin:end].copy_(tensor, non_blocking=self._pinned)
        if self._pinned:
            self._landed.record()

    def was_filled(self, steps: int) -> None:
        """Say that this many steps were written without `write`."""
        self._filled = steps

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

    def sample(
        self, count: int, generator: torch.Generator, out: list[Tensor] | None = None
    ) -> tuple[list[Tensor], Tensor]:
        """Rows drawn with equal chances, on the output device, and their indices [count]."""
        indices = torch.randint(
            self._filled * self._num_envs,
            (count,),
            generator=generator,
            device=self._store_device,
        )
        return self.fetch(indices, out), indices

    def fetch(self, indices: Tensor, out: list[Tensor] | None = None) -> list[Tensor]:
        """The rows with these indices, on the output device, in `out` if given."""
        if out is not None:
            if self._device == self._store_device:
                return self._table.gather(indices, out)
            return written(self.fetch(indices), out)
        if self._batches is None:
            return [to_device(row, self._device) for row in self.gather(indices)]
        self.settle()
        return self._batches.bring((len(indices),), lambda out: self._table.gather(indices, out))

    def send(self, rows: list[Tensor]) -> list[Tensor]:
        """Rows that lie on the storage device, on the output device."""
        if self._batches is None:
            return [to_device(row, self._device) for row in rows]
        return self._batches.bring(
            (len(rows[0]),),
            lambda out: [to.copy_(row) for to, row in zip(out, rows, strict=True)],
        )

    def gather(self, indices: Tensor) -> list[Tensor]:
        """The rows with these indices, on the storage device."""
        self.settle()
        return self._table.gather(to_device(indices, self._store_device))

    def columns(self, which: Which) -> list[Tensor]:
        """Some fields of all rows [buffer_size * num_envs, ...], on the storage device."""
        self.settle()
        return [self.tensors[i] for i in which]

    def rewrite(
        self, which: Which, indices: Tensor, rows: list[Tensor], is_written: Tensor
    ) -> None:
        """Write some fields of the rows with these indices [K] over, where `is_written` [K]."""
        here = [to_device(row, self._store_device).contiguous() for row in rows]
        if self._store_device.type == "cuda":  # rows outside are not written
            self._part(which).scatter(here, torch.where(is_written, indices, -1))
            return
        self.settle()
        for column, row in zip(self.columns(which), here, strict=True):
            column[indices[is_written]] = row[is_written]

    def _part(self, which: Which) -> Table:
        table = self._parts.get(which)
        if table is None:
            table = self._parts[which] = Table(self.columns(which))
        return table

    def read(self, which: Which, indices: Tensor, out: list[Tensor]) -> None:
        """Write some fields of the rows with these indices into tensors on the output device."""
        table = self._part(which)
        if self._device == self._store_device:
            table.gather(indices, out)
        else:
            written(table.gather(indices), out)


def written(rows: list[Tensor], out: list[Tensor]) -> list[Tensor]:
    """`out`, with the rows in it."""
    for row, target in zip(rows, out, strict=True):
        target.copy_(row, non_blocking=target.is_cuda)
    return out


class Table:
    """A `RowTable` of columns of any dtype; of those that kernels do not know it moves the bits."""

    def __init__(self, columns: list[Tensor]) -> None:
        self._table = RowTable([_as_bits(column) for column in columns])
        self._foreign = [(i, c.dtype) for i, c in enumerate(columns) if c.dtype not in _KNOWN]

    def gather(self, indices: Tensor, out: list[Tensor] | None = None) -> list[Tensor]:
        """The rows with these indices, in `out` if given."""
        if out is not None:
            self._table.gather(indices, self._bits(out))
            return out
        rows = self._table.gather(indices)
        for i, dtype in self._foreign:
            rows[i] = rows[i].view(dtype)
        return rows

    def scatter(self, rows: list[Tensor], indices: Tensor) -> None:
        """Write rows over those with these indices."""
        self._table.scatter(self._bits(rows), indices)

    def push(self, rows: list[Tensor], slot: int) -> None:
        """Write a step."""
        self._table.push(self._bits(rows), slot)

    def _bits(self, rows: list[Tensor]) -> list[Tensor]:
        return [_as_bits(row) for row in rows] if self._foreign else rows


def _as_bits(tensor: Tensor) -> Tensor:
    if tensor.dtype in _KNOWN:
        return tensor
    found = _BITS.get(tensor.dtype.itemsize)
    if found is None:
        raise TypeError(f"fields of dtype {tensor.dtype} cannot be stored on a device")
    return tensor.view(found)
