"""Multi-layer perceptrons as one operation, beside autograd of the plain modules in float64."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sharpwave.primitives import backend
from sharpwave.primitives.mlp import plain as plain
from sharpwave.primitives.mlp.tensors import Activation, activation_of, mlp

ACTIVATIONS = {
    "tanh": nn.Tanh(),
    "relu": nn.ReLU(),
    "elu": nn.ELU(),
    "steep elu": nn.ELU(1.5),
    "leaky_relu": nn.LeakyReLU(),
    "silu": nn.SiLU(),
    "gelu": nn.GELU(),
}
SIZES = [(1, 1, 1, 1), (3, 5, 2), (7, 13, 1, 13, 12), (4, 130, 33, 3)]
"""Widths from the input to the output."""
ROWS = [1, 7, 200]
CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}


def network(sizes: tuple[int, ...], activation: nn.Module) -> nn.Sequential:
    torch.manual_seed(len(sizes))
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), activation]
    made = nn.Sequential(*layers[:-1]).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(1.5)
    return made


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def wanted(net: nn.Sequential, x: Tensor, grad: Tensor, of_latent: Tensor) -> list[Tensor]:
    """Output, latent and gradients of input and parameters, layer by layer."""
    x = x.detach().requires_grad_()
    latent = net[:-1](x)
    output = net[-1](latent)
    leaves = [x, *net.parameters()]
    found = torch.autograd.grad([output, latent], leaves, [grad, of_latent])
    return [output.detach(), latent.detach(), *found]


def as_one(net: nn.Sequential, x: Tensor, grad: Tensor, of_latent: Tensor | None) -> list[Tensor]:
    x = x.detach().requires_grad_()
    linears: list[Any] = list(net)[::2]
    activation = activation_of(net[1])
    assert activation is not None
    weights, biases = [one.weight for one in linears], [one.bias for one in linears]
    output, latent = mlp(x, weights, biases, activation)
    leaves = [x, *net.parameters()]
    if of_latent is None:
        found = torch.autograd.grad(output, leaves, grad)
    else:
        found = torch.autograd.grad([output, latent], leaves, [grad, of_latent])
    return [output.detach(), latent.detach(), *found]


def assert_same(found: list[Tensor], correct: list[Tensor], **close: Any) -> None:
    for one, other in zip(found, correct, strict=True):
        assert one.shape == other.shape
        size = other.abs().max().clamp(min=1)
        torch.testing.assert_close(one.double().cpu() / size, other / size, **(close or CLOSE))


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_outputs_and_gradients(
    name: str, sizes: tuple[int, ...], rows: int, device: torch.device
) -> None:
    net = network(sizes, ACTIVATIONS[name])
    x, grad = normal(rows, sizes[0]), normal(rows, sizes[-1], seed=1)
    of_latent = normal(rows, sizes[-2], seed=2)
    correct = wanted(net, x, grad, of_latent)
    given = [one.float().to(device) for one in (x, grad, of_latent)]
    assert_same(as_one(copy.deepcopy(net).float().to(device), *given), correct)


def test_an_output_alone_is_differentiated(device: torch.device) -> None:
    net, x, grad = network((3, 8, 8, 2), nn.ELU()), normal(20, 3), normal(20, 2, seed=1)
    correct = wanted(net, x, grad, torch.zeros(20, 8, dtype=torch.float64))
    given = x.float().to(device), grad.float().to(device)
    assert_same(as_one(net.float().to(device), *given, None), correct)


def test_memory_that_is_not_contiguous(device: torch.device) -> None:
    net, x, grad = network((3, 8, 2), nn.ELU()), normal(3, 40), normal(2, 20, seed=1)
    latent = torch.zeros(20, 8, dtype=torch.float64)
    correct = wanted(net, x.t()[::2], grad.t(), latent)
    given = x.float().to(device).t()[::2], grad.float().to(device).t()
    assert_same(as_one(net.float().to(device), *given, None), correct)
    summed = torch.ones(1, 1).expand(20, 2)  # what the gradient of a sum is
    correct = wanted(copy.deepcopy(net).double().cpu(), x.t()[::2], summed.double(), latent)
    assert_same(as_one(net, given[0], summed.to(device), None), correct)


def test_frozen_parameters_and_inputs_get_no_gradient(device: torch.device) -> None:
    net = network((3, 8, 8, 2), nn.Tanh()).float().to(device)
    linears: list[Any] = list(net)[::2]
    linears[0].requires_grad_(False)
    weights, biases = [one.weight for one in linears], [one.bias for one in linears]
    x = normal(20, 3).float().to(device)
    output, _ = mlp(x, weights, biases, Activation("tanh"))
    output.square().sum().backward()
    found = [linears[i].weight.grad.clone() for i in (1, 2)]
    assert linears[0].weight.grad is None
    assert linears[0].bias.grad is None
    assert x.grad is None
    net.zero_grad()
    net(x).square().sum().backward()
    for one, i in zip(found, (1, 2), strict=True):
        torch.testing.assert_close(one, linears[i].weight.grad, **CLOSE)


def test_nothing_is_kept_without_gradients(device: torch.device) -> None:
    net = network((3, 8, 2), nn.GELU()).float().to(device)
    linears: list[Any] = list(net)[::2]
    weights, biases = [one.weight for one in linears], [one.bias for one in linears]
    x = normal(20, 3).float().to(device)
    with torch.no_grad():
        output, latent = mlp(x, weights, biases, Activation("gelu"))
        torch.testing.assert_close(output, net(x), **CLOSE)
    assert not output.requires_grad
    assert not latent.requires_grad


@pytest.fixture(params=[(64, 32, 16, 4, 3), (128, 128, 32, 8, 3)], ids=str)
def products(
    request: pytest.FixtureRequest, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Products that a kernel computes with what follows."""
    if not backend.uses_triton(torch.empty(0, device=device)):
        pytest.skip("needs a GPU or Triton's interpreter")
    from sharpwave.primitives.mlp import triton as jit

    tiles = jit.Tiles(*request.param)
    monkeypatch.setattr(jit, "TILES", dict.fromkeys(jit.TILES, tiles))
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", ["elu", "gelu"])
@pytest.mark.usefixtures("products")
def test_products_with_what_follows(
    name: str, sizes: tuple[int, ...], rows: int, device: torch.device
) -> None:
    net = network(sizes, ACTIVATIONS[name])
    x, grad = normal(rows, sizes[0]), normal(rows, sizes[-1], seed=1)
    latent = torch.zeros(rows, sizes[-2], dtype=torch.float64)
    correct = wanted(net, x, grad, latent)
    given = x.float().to(device), grad.float().to(device)
    found = as_one(net.float().to(device), *given, None)
    close = CLOSE if device.type == "cpu" else {"rtol": 1e-2, "atol": 1e-2}
    assert_same(found, correct, **close)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_autocast_multiplies_in_bfloat16_and_gives_gradients_in_float32(
    name: str, device: torch.device
) -> None:
    net = network((5, 32, 24, 3), ACTIVATIONS[name])
    x, grad = normal(64, 5), normal(64, 3, seed=1)
    of_latent = normal(64, 24, seed=2)
    correct = wanted(net, x, grad, of_latent)
    single = copy.deepcopy(net).float().to(device)
    given = [one.float().to(device) for one in (x, grad, of_latent)]
    with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
        found = as_one(single, *given)
        plainly = wanted(single, given[0], given[1].bfloat16(), given[2].bfloat16())
    assert [one.dtype for one in found] == [torch.bfloat16] * 2 + [torch.float32] * 7
    for one, other, exact in zip(found, plainly, correct, strict=True):
        error, of_layers = ((got.double().cpu() - exact).norm() for got in (one, other))
        slack = 0.06 if backend.INTERPRETED else 0.01  # the interpreter cuts digits off
        assert error < 2 * of_layers + slack * exact.norm()


def test_numbers_that_are_none_are_not_hidden(device: torch.device) -> None:
    for module in ACTIVATIONS.values():
        net = network((2, 3, 2), module).float().to(device)
        x = torch.tensor([[float("nan"), 1.0], [1.0, 2.0]], device=device)
        found = as_one(net, x, torch.ones(2, 2, device=device), None)
        assert found[0][0].isnan().all()
        assert found[0][1].isfinite().all()
        assert found[3].isnan().any()


def test_gradients_are_the_same_every_time(device: torch.device) -> None:
    net = network((4, 33, 2), nn.ELU()).float().to(device)
    x, grad = (normal(300, n, seed=n).float().to(device) for n in (4, 2))
    first, second = (as_one(net, x, grad, None) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


@pytest.mark.skipif(backend.INTERPRETED, reason="kernels compute in float32")
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_definition_has_these_gradients(name: str) -> None:
    net = network((2, 3, 4, 2), ACTIVATIONS[name])
    activation = activation_of(net[1])
    assert activation is not None
    x = normal(3, 2).requires_grad_()
    leaves = [p.detach().requires_grad_() for p in net.parameters()]

    def function(x: Tensor, *leaves: Tensor) -> tuple[Tensor, Tensor]:
        return mlp(x, leaves[::2], leaves[1::2], activation)

    assert torch.autograd.gradcheck(function, (x, *leaves))


def test_gradients_are_differentiated_again(device: torch.device) -> None:
    net, x = network((2, 5, 3, 2), nn.Tanh()).float().to(device), normal(9, 2).float().to(device)
    linears: list[Any] = list(net)[::2]
    weights, biases = [one.weight for one in linears], [one.bias for one in linears]
    found = []
    for whole in (lambda x: mlp(x, weights, biases, Activation("tanh"))[0], net):
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(whole(x).square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), [x, *net.parameters()]))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nn.Tanh(), Activation("tanh")),
        (nn.ELU(0.5), Activation("elu", 0.5)),
        (nn.ELU(-0.5), None),
        (nn.LeakyReLU(0.2), Activation("leaky_relu", 0.2)),
        (nn.LeakyReLU(-0.2), None),
        (nn.GELU(), Activation("gelu")),
        (nn.GELU("tanh"), None),
        (nn.Sigmoid(), None),
        (nn.Linear(1, 1), None),
        (type("Own", (nn.Tanh,), {})(), None),
    ],
    ids=str,
)
def test_activations_that_are_known(module: nn.Module, expected: Activation | None) -> None:
    assert activation_of(module) == expected
