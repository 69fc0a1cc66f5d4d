from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sharpwave.nn import FlatParameters, LaProp
from tests.reference.world_model import laprop


def network() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))


@pytest.mark.parametrize("agc", [None, 0.3, 0.01])
@pytest.mark.parametrize("warmup", [0, 7])
def test_steps_are_those_of_the_definition(agc: float | None, warmup: int) -> None:
    module = network()
    with torch.no_grad():
        module[1].bias.zero_()
    flat = FlatParameters(module)
    optimizer = LaProp(flat, lr=0.01, agc=agc, warmup=warmup)
    first = [p.detach().double().numpy().copy() for p in module.parameters()]
    rng = np.random.default_rng(0)
    grads = [
        [rng.normal(size=x.shape) * 10.0 ** rng.integers(-3, 2) for x in first] for _ in range(20)
    ]
    for step in grads:
        flat.set_grad(torch.cat([torch.tensor(g).float().reshape(-1) for g in step]))
        optimizer.step()
    expected = laprop(first, grads, lr=0.01, agc=agc, warmup=warmup)
    for parameter, wanted in zip(module.parameters(), expected, strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), wanted, rtol=2e-4, atol=2e-5)


def test_steps_go_on_from_a_state() -> None:
    one, other = (FlatParameters(network()) for _ in range(2))
    first, second = LaProp(one, lr=0.1, warmup=3), LaProp(other, lr=0.0, warmup=3)
    for _ in range(3):
        one.set_grad(torch.ones_like(one.data))
        first.step()
    other.data.copy_(one.data)
    second.load_arrays(first.arrays())
    for flat, optimizer in ((one, first), (other, second)):
        flat.set_grad(torch.full_like(flat.data, -2.0))
        optimizer.step()
    assert torch.equal(one.data, other.data)


def test_a_gradient_of_zero_moves_nothing() -> None:
    flat = FlatParameters(network())
    before = flat.data.clone()
    optimizer = LaProp(flat, lr=0.1, warmup=0)
    flat.set_grad(torch.zeros_like(flat.data))
    optimizer.step()
    assert torch.equal(before, flat.data)
