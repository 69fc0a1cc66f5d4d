"""Batches on their way from host memory."""

from __future__ import annotations

import torch

from sharpwave.tensors.buffers.fields import TensorField
from sharpwave.tensors.buffers.transfers import HostBatches

FIELDS = [
    TensorField(torch.float32, (3,)),
    TensorField(torch.bool),
    TensorField(torch.float64, (2, 2)),
]


def test_a_batch_holds_what_was_written() -> None:
    written: list[torch.Tensor] = []

    def write(tensors: list[torch.Tensor]) -> None:
        for tensor in tensors:
            tensor.random_(0, 2)
            written.append(tensor.clone())

    batch = HostBatches(FIELDS, torch.device("cpu")).bring((5, 4), write)
    for tensor, wanted, field in zip(batch, written, FIELDS, strict=True):
        assert tensor.shape == (5, 4, *field.shape)
        assert tensor.dtype == field.dtype
        assert torch.equal(tensor, wanted)


def test_a_tensor_of_a_batch_can_be_changed_while_another_waits_for_its_gradient() -> None:
    batch = HostBatches(FIELDS, torch.device("cpu")).bring(
        (5,), lambda tensors: [tensor.zero_() for tensor in tensors]
    )
    weight = torch.ones((), requires_grad=True)
    loss = (batch[0] * weight).square().sum()
    batch[2].add_(1)
    loss.backward()
    assert weight.grad is not None
