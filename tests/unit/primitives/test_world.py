"""The single rows of a world model: native code and Triton beside plain torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from sharpwave.losses import two_hot_bins
from sharpwave.primitives.world import plain as plain
from sharpwave.primitives.world import tensors as world


@pytest.fixture(autouse=True)
def everything_is_on(device: torch.device) -> Iterator[None]:
    with device:
        yield


def normal(*shape: int, seed: int = 0, scale: float = 2.0) -> Tensor:
    generator = torch.Generator("cpu").manual_seed(seed)
    drawn = torch.randn(shape, generator=generator, device="cpu") * scale
    return drawn.to(torch.get_default_device())


def gumbel(*shape: int) -> Tensor:
    generator = torch.Generator("cpu").manual_seed(5)
    uniform = torch.rand(shape, generator=generator, device="cpu").clamp(1e-6, 1 - 1e-6)
    return -torch.log(-torch.log(uniform.to(torch.get_default_device())))


def all_bins() -> Tensor:
    return two_hot_bins().to(torch.get_default_device())


def gradients(function: Callable[..., Tensor], *inputs: Tensor, grad: Tensor) -> list[Tensor]:
    leaves = [one.detach().clone().requires_grad_() for one in inputs]
    return list(torch.autograd.grad(function(*leaves), leaves, grad))


@pytest.mark.parametrize("shape", [(5, 64), (3, 7), (2, 3, 33), (1, 1), (300, 8)])
def test_normalized_rows_and_their_gradients(shape: tuple[int, ...]) -> None:
    x, scale, grad = normal(*shape), normal(shape[-1], seed=1), normal(*shape, seed=2)
    torch.testing.assert_close(world.norm_silu(x, scale), plain.norm_silu(x, scale))
    expected = gradients(plain.norm_silu, x, scale, grad=grad)
    close: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}
    for found in (
        gradients(world.norm_silu, x, scale, grad=grad),
        world.norm_silu_backward(x, scale, grad),
        plain.norm_silu_backward(x, scale, grad),
    ):
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, **close)
    of = world.row_functions(x)
    torch.testing.assert_close(of.norm_silu_rows(x, scale, grad), expected[0], **close)


@pytest.mark.parametrize("sizes", [(8, 5, 16), (4, 3, 5), (1, 2, 1), (2, 40, 33)])
def test_what_is_remembered_and_its_gradients(sizes: tuple[int, int, int]) -> None:
    blocks, rows, n = sizes
    gates, before = normal(blocks, rows, 3 * n), normal(rows, blocks * n, seed=1)
    grad = normal(rows, blocks * n, seed=2)
    of = world.row_functions(gates)
    torch.testing.assert_close(of.remember(gates, before), plain.remember(gates, before))
    expected = gradients(plain.remember, gates, before, grad=grad)
    for found in (of.remember_backward, plain.remember_backward):
        for one, other in zip(found(gates, before, grad), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("share", [0.0, 0.01, 1.0])
@pytest.mark.parametrize("shape", [(5, 8, 8), (7, 3, 4), (2, 32, 24), (3, 1)])
def test_draws_and_their_straight_gradients(shape: tuple[int, ...], share: float) -> None:
    logits, noise, grad = normal(*shape), gumbel(*shape), normal(*shape, seed=2)
    drawn = world.draw_classes(logits, noise, share)
    assert torch.equal(drawn, plain.draw_classes(logits, noise, share))
    assert bool((drawn.sum(-1) == 1).all())

    def probabilities(logits: Tensor) -> Tensor:
        return (1.0 - share) * logits.softmax(-1) + share / shape[-1]

    (expected,) = gradients(probabilities, logits, grad=grad)
    for found in (world.row_functions(logits).draw_classes_backward, plain.draw_classes_backward):
        torch.testing.assert_close(found(logits, grad, share), expected, rtol=1e-4, atol=1e-5)


def test_draws_follow_their_probabilities() -> None:
    """Noise of Gumbel's distribution makes the largest one a sample."""
    logits = torch.tensor([0.0, 1.0, 2.0])
    drawn = world.draw_classes(logits.expand(40_000, 3).contiguous(), gumbel(40_000, 3), 0.3)
    expected = 0.7 * logits.softmax(-1) + 0.1
    torch.testing.assert_close(drawn.mean(0), expected, rtol=0, atol=0.01)


def test_means_over_bins() -> None:
    bins = all_bins()
    logits = normal(6, 5, 255)
    torch.testing.assert_close(
        world.two_hot_mean(logits, bins), plain.two_hot_mean(logits, bins), rtol=1e-4, atol=1e-3
    )
    assert world.two_hot_mean(torch.zeros(4, 255), bins).tolist() == [0.0] * 4
    one = torch.full((255,), -1e9)
    one[140] = 0.0
    assert world.two_hot_mean(one, bins).item() == bins[140]


def test_losses_over_bins_and_their_gradients() -> None:
    bins = all_bins()
    logits, grad = normal(6, 5, 255), normal(6, 5, seed=2)
    targets = normal(2, 6, 5, seed=1)
    targets[1] *= 1e10
    targets[0, 0] = torch.stack((bins[130], torch.zeros(()), bins[-1], bins[0], bins[1]))

    def loss(of: Any) -> Callable[[Tensor], Tensor]:
        weights = torch.tensor([1.0, 0.7])
        if of is plain:
            return lambda logits: plain.two_hot_loss(logits, bins, targets, weights)
        return lambda logits: world.two_hot_loss(logits, bins, list(targets), weights.tolist())

    torch.testing.assert_close(loss(world)(logits), loss(plain)(logits), rtol=1e-4, atol=1e-4)
    (found,), (expected,) = (gradients(loss(of), logits, grad=grad) for of in (world, plain))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_other_dtypes_are_computed_by_torch() -> None:
    x, scale = normal(3, 8).double(), torch.ones(8).double()
    assert world.norm_silu(x, scale).dtype == torch.float64
    torch.testing.assert_close(world.norm_silu(x, scale), plain.norm_silu(x, scale))
    half = normal(3, 8).bfloat16()
    assert world.norm_silu(half, torch.ones(8)).dtype == torch.bfloat16
