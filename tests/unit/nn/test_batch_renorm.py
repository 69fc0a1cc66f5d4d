"""Batch renormalization: batch statistics at first, running ones later, the same at play."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from sharpwave.nn import BatchRenorm, StackedMLP


def batches(count: int, size: int = 3) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    scale, shift = torch.tensor([0.5, 3.0, 10.0][:size]), torch.tensor([5.0, 0.0, -20.0][:size])
    return [torch.randn(64, size, generator=generator) * scale + shift for _ in range(count)]


def test_the_warm_up_is_plain_batch_normalization() -> None:
    ours, theirs = BatchRenorm(3), torch.nn.BatchNorm1d(3, eps=1e-3)
    for x in batches(5):
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-5)


def test_gradients_of_the_warm_up_are_those_of_batch_normalization() -> None:
    (x,) = batches(1)
    grads = []
    for layer in (BatchRenorm(3), torch.nn.BatchNorm1d(3, eps=1e-3)):
        leaf = x.clone().requires_grad_()
        (layer(leaf) ** 3).sum().backward()
        assert leaf.grad is not None
        grads.append(leaf.grad)
    torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-3)


def test_running_statistics_are_learned_in_training_alone() -> None:
    layer = BatchRenorm(3, momentum=0.1)
    for x in batches(200):
        layer(x)
    np.testing.assert_allclose(layer.running_mean[0], [5.0, 0.0, -20.0], atol=0.7)
    np.testing.assert_allclose(layer.running_var[0].sqrt(), [0.5, 3.0, 10.0], rtol=0.1)
    before = copy.deepcopy(layer.state_dict())
    layer.eval()
    layer(batches(1)[0])
    for name, value in layer.state_dict().items():
        assert torch.equal(value, before[name])


def test_after_the_warm_up_training_agrees_with_play() -> None:
    layer = BatchRenorm(3, warmup=100, momentum=0.1)
    for x in batches(300):
        layer(x)
    (x,) = batches(1)
    played = copy.deepcopy(layer).eval()(x)
    torch.testing.assert_close(layer(x), played, rtol=1e-3, atol=1e-3)


def test_corrections_are_bounded() -> None:
    layer = BatchRenorm(1, warmup=0, momentum=0.0)
    x = torch.tensor([[1e3], [1e3 + 1]])
    # The batch is 1000 deviations away; at most 5 of them are let through.
    torch.testing.assert_close(layer(x).mean(), torch.tensor(5.0), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("n", [1, 3])
def test_stacked_layers_are_those_of_single_ones(n: int) -> None:
    stacked = BatchRenorm(3, n)
    x = torch.stack([(i + 1) * batches(1)[0] for i in range(n)])
    output = stacked(x)
    for i in range(n):
        torch.testing.assert_close(output[i], BatchRenorm(3)(x[i]))


def test_a_stack_with_batch_norm_keeps_its_networks_apart() -> None:
    net = StackedMLP(2, 3, (8,), 1, "relu", np.random.default_rng(0), batch_norm=True)
    (x,) = batches(1)
    before = net(x)
    with torch.no_grad():
        net.layers[0].weight[1] += 1.0  # type: ignore[index, operator]
    after = net(x)
    torch.testing.assert_close(after[0], before[0])
    assert not torch.equal(after[1], before[1])
