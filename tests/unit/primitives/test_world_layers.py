"""Linear layers of world models in native code give the numbers of torch, in float64."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from sharpwave import _native
from sharpwave.nn.world_layers import Head, Layer
from sharpwave.nn.world_model import RSSM, Latent
from sharpwave.primitives.world import plain
from sharpwave.primitives.world import tensors as world

SIZES = [((3,), 4, 5), ((16,), 64, 64), ((2, 70), 33, 255), ((129,), 192, 16), ((1,), 1, 1)]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Native layers are for one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.double(), expected.double(), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(("rows", "k", "n"), SIZES)
@pytest.mark.parametrize("has_scale", [False, True])
def test_layers_and_their_gradients(rows: tuple[int, ...], k: int, n: int, has_scale: bool) -> None:
    x, weight = normal(*rows, k), normal(n, k, seed=1) / k**0.5
    given = [x, weight, normal(n, seed=2), *([normal(n, seed=3)] if has_scale else [])]
    grad = normal(*rows, n, seed=4)
    assert world.has_native_layers(x, weight)

    def gradients(kind: torch.dtype) -> list[Tensor]:
        parts = [one.to(kind).requires_grad_() for one in given]
        y = world.layer(*parts) if has_scale else world.linear(*parts)
        with torch.no_grad():
            close(world.layer(*parts) if has_scale else world.linear(*parts), y)
        return [y, *torch.autograd.grad(y, parts, grad.to(kind))]

    for found, expected in zip(gradients(torch.float32), gradients(torch.float64), strict=True):
        close(found, expected)


def test_an_input_without_gradient_gets_none() -> None:
    weight = normal(4, 3).requires_grad_()
    y = world.layer(normal(5, 3), weight, torch.zeros(4), torch.ones(4))
    y.sum().backward()
    assert weight.grad is not None
    assert _native.linear_backward(normal(5, 3), normal(4, 3), normal(5, 4), False)[0] is None


def test_a_bias_of_every_row() -> None:
    x, weight, bias = normal(6, 8), normal(5, 8, seed=1), normal(6, 5, seed=2)
    close(world.linear(x, weight, bias), x.double() @ weight.double().t() + bias)


def test_other_kinds_are_computed_by_torch() -> None:
    x, weight = normal(6, 8), normal(5, 8)
    assert not world.has_native_layers(x.double(), weight.double())
    assert not world.has_native_layers(normal(2, 600), normal(3, 600))
    with torch.autocast("cpu", torch.bfloat16):
        assert world.linear(x, weight, torch.zeros(5)).dtype == torch.bfloat16
    torch.set_num_threads(2)
    assert not world.has_native_layers(x, weight)


@pytest.mark.parametrize("layers", [0, 1, 3])
def test_heads_in_one_call(layers: int) -> None:
    head = Head(20, layers, 32, 7, np.random.default_rng(0))
    x = normal(4, 9, 20)
    with torch.no_grad():
        found = head(x)
    close(found, head(x))
    close(found, head.double()(x.double()))


def test_a_head_with_another_layer_is_no_longer_one_call() -> None:
    class Louder(Layer):
        def forward(self, x: Tensor) -> Tensor:
            return 2.0 * super().forward(x)

    generator = np.random.default_rng(0)
    head = Head(6, 1, 8, 3, generator)
    head.hidden[0] = Louder(6, 8, generator)
    with torch.no_grad():
        assert head.weights() is None
        close(head(normal(5, 6)), head.output(head.hidden(normal(5, 6))))


@pytest.mark.parametrize("prior_layers", [1, 2])
def test_imagined_steps(prior_layers: int) -> None:
    sizes = {"deter": 48, "hidden": 24, "latents": 5, "classes": 6, "blocks": 4}
    rssm = RSSM(3, 10, **sizes, prior_layers=prior_layers, generator=np.random.default_rng(0))
    deter, action, noise = normal(33, 48), 3.0 * normal(33, 3, seed=1), normal(33, 5, 6, seed=2)
    before = Latent(deter, plain.draw_classes(normal(33, 5, 6), noise, 0.0))
    with torch.no_grad():
        after = rssm.imaginer()(before, action, noise)
        expected = rssm.double().imagine(
            Latent(*(part.double() for part in before)), action.double(), noise.double()
        )
    close(after.deter, expected.deter)
    close(after.stoch, expected.stoch)


def test_bad_shapes_are_refused() -> None:
    x, weight, bias = normal(5, 3), normal(4, 3), normal(4)
    with pytest.raises(ValueError, match="x must have the shape"):
        _native.linear(normal(5, 2), weight, bias)
    with pytest.raises(ValueError, match="bias must hold n numbers"):
        _native.linear(x, weight, normal(3))
    with pytest.raises(ValueError, match="scale must hold n numbers"):
        _native.layer(x, weight, bias, normal(3))
    with pytest.raises(ValueError, match="grad must hold n numbers"):
        _native.linear_backward(x, weight, normal(5, 3), True)
    with pytest.raises(ValueError, match="weights must have shapes"):
        _native.head((weight, bias), normal(5, 2))
    with pytest.raises(TypeError, match="weights must be a tuple"):
        _native.head([weight, bias], x)  # type: ignore[arg-type]
