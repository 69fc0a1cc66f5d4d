"""Tensors on their way between host and device, without waiting for either."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from sharpwave.tensors.buffers.fields import TensorField

__all__ = ["HostBatches", "Landing", "to_device"]

_ALIGNMENT = 256


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device; only a copy to the host is waited for."""
    if tensor.device == device:
        return tensor
    return tensor.to(device, non_blocking=device.type != "cpu")


class HostBatches:
    """Brings batches of host memory to a device, each in one copy.

    For a CUDA device a batch is put together in page-locked memory and copied on a stream of its
    own, beside what the device is still computing; what is launched afterwards waits for it. For
    the CPU a batch stays where it is.

    Args:
        fields: The tensors of a batch.
        device: Device of batches.
    """

    def __init__(self, fields: Sequence[TensorField], device: torch.device) -> None:
        self._fields = fields
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def bring(self, lead: tuple[int, ...], write: Callable[[list[Tensor]], object]) -> list[Tensor]:
        """A batch whose tensors [*lead, ...] `write` fills, on the device."""
        places, size = self._places(lead)
        on_host = torch.empty(size, dtype=torch.uint8, pin_memory=self._stream is not None)
        write(self._views(on_host, places, lead))
        if self._stream is None:
            return self._views(on_host, places, lead)
        now = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._stream):
            there = on_host.to(self._device, non_blocking=True)
        now.wait_stream(self._stream)
        there.record_stream(now)
        return self._views(there, places, lead)

    def _places(self, lead: tuple[int, ...]) -> tuple[list[int], int]:
        places, size = [], 0
        for field in self._fields:
            places.append(size)
            n_bytes = math.prod((*lead, *field.shape)) * field.dtype.itemsize
            size += -(-n_bytes // _ALIGNMENT) * _ALIGNMENT
        return places, size

    def _views(self, block: Tensor, places: list[int], lead: tuple[int, ...]) -> list[Tensor]:
        """The tensors in a block, each with a count of changes of its own.

        As plain slices they would count as changed together: writing to one would forbid the
        gradients of another.
        """
        views = []
        for field, begin in zip(self._fields, places, strict=True):
            shape = (*lead, *field.shape)
            end = begin + math.prod(shape) * field.dtype.itemsize
            views.append(block[begin:end].view(field.dtype).view(shape).data)
        return views


class Landing:
    """Steps on their way from a device to host memory.

    A step is copied to page-locked memory without waiting. It is handed on when the next one comes
    or when somebody wants to read.

    Args:
        accept: Takes the tensors of a step, in host memory.
    """

    def __init__(self, accept: Callable[[list[Tensor]], None]) -> None:
        self._accept = accept
        self._waiting: tuple[list[Tensor], torch.cuda.Event] | None = None

    def put(self, tensors: list[Tensor]) -> None:
        """Hand on a step, at once if it is in host memory already."""
        self.settle()
        if not any(tensor.is_cuda for tensor in tensors):
            self._accept(tensors)
            return
        landed = [_to_host(tensor) for tensor in tensors]
        event = torch.cuda.Event()
        event.record()
        self._waiting = landed, event

    def settle(self) -> None:
        """Wait for the step that is on its way, and hand it on."""
        if self._waiting is not None:
            landed, event = self._waiting
            self._waiting = None
            event.synchronize()
            self._accept(landed)


def _to_host(tensor: Tensor) -> Tensor:
    if not tensor.is_cuda:
        return tensor.clone()  # the caller may write to it before it is handed on
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor, non_blocking=True)
