"""Perceptrons that a GPU takes as one operation are those that are called layer by layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sharpwave.nn import mlp as module
from sharpwave.nn.mlp import ACTIVATIONS, MLP, make_mlp
from sharpwave.primitives.mlp import tensors


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu")


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are taken as one, on any device."""
    monkeypatch.setattr(module, "uses_triton", lambda _: True)
    monkeypatch.setattr(module, "_MANY_ON_GPU", 8)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of what is taken as one operation."""
    rows: list[int] = []

    def counted(x: torch.Tensor, *rest: Any) -> Any:
        rows.append(len(x))
        return whole(x, *rest)

    whole = tensors.mlp
    monkeypatch.setattr(tensors, "mlp", counted)
    return rows


def network(activation: str = "elu", hidden: tuple[int, ...] = (16, 8), **options: Any) -> MLP:
    return make_mlp(5, hidden, 3, activation, np.random.default_rng(0), **options)


def gradients(net: MLP, found: Any) -> list[torch.Tensor]:
    output, latent = found
    return list(torch.autograd.grad(output.square().sum() + latent.sum(), list(net.parameters())))


@pytest.mark.parametrize("shape", [(20, 5), (4, 6, 5)], ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_output_latent_and_gradients(
    activation: str, shape: tuple[int, ...], device: torch.device, calls: list[int]
) -> None:
    net = network(activation).to(device)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device)
    found = net.with_latent(x)
    assert calls == [x[..., 0].numel()]
    latent = net[:-1](x)
    for one, other in zip(found, (net[-1](latent), latent), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    expected = gradients(net, (net[-1](latent), latent))
    for one, other in zip(gradients(net, found), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(net.fused(x), net(x), rtol=1e-4, atol=1e-5)
    assert len(calls) == 2


def test_what_is_not_known_goes_layer_by_layer(device: torch.device, calls: list[int]) -> None:
    x = torch.randn(20, 5, device=device)
    hooked = network()
    hooked[1].register_forward_hook(lambda *args: args[2] + 1)
    linears = [nn.Linear(5, 4), nn.Linear(4, 3)]
    networks = [
        network(hidden=()),
        network(batch_norm=True),
        hooked,
        MLP(linears[0], nn.Sigmoid(), linears[1]),
        MLP(linears[0], nn.ELU(), nn.Linear(4, 4), nn.ReLU(), linears[1]),
        MLP(linears[0], nn.ELU(), nn.Linear(4, 3, bias=False)),
    ]
    for net in networks:
        net.to(device).eval()
        torch.testing.assert_close(net.with_latent(x)[0], net(x), rtol=1e-4, atol=1e-5)
    double = network().double().to(device)
    assert double.with_latent(x.double())[0].dtype == torch.float64
    few = network().to(device)
    torch.testing.assert_close(few.with_latent(x[:7])[0], few(x[:7]))
    assert not calls


def test_autocast_is_followed_to_bfloat16_alone(device: torch.device, calls: list[int]) -> None:
    net, x = network().to(device), torch.randn(20, 5, device=device)
    with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
        output, latent = net.with_latent(x)
        other = net(x)
    assert calls == [20]
    assert output.dtype == latent.dtype == torch.bfloat16
    torch.testing.assert_close(output, other, rtol=0.05, atol=0.05)
    with torch.autocast(device.type, torch.float16, cache_enabled=False):
        assert net.with_latent(x)[0].dtype == torch.float16
    assert calls == [20]


@pytest.mark.long
def test_a_compiled_network_is_not_taken_apart(device: torch.device, calls: list[int]) -> None:
    net, x = network().to(device), torch.randn(20, 5, device=device)
    compiled = torch.compile(net.with_latent, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x)[0], net(x))
    assert not calls
