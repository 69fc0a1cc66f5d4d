"""Operations on images keep little, and give the values and gradients of what they stand for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import interpolate, max_pool2d, silu

from sharpwave.nn.world_codecs import Decoder, Encoder
from sharpwave.nn.world_images import norm_silu, pooled, upsampled
from sharpwave.nn.world_layers import Conv, RMSNorm
from sharpwave.nn.world_model import Latent


def image(channels: int = 3, size: int = 8) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, channels, size, size, generator=generator, dtype=torch.float64)


def found_by(function: Callable[[Tensor], Tensor], x: Tensor, *weights: Tensor) -> list[Tensor]:
    """The value of a function, and its gradients by the input and by weights."""
    x = x.clone().requires_grad_()
    y = function(x)
    return [y, *torch.autograd.grad(y.square().sum(), (x, *weights))]


def same(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_pools() -> None:
    x = image()
    x[0, 0, :2, :2] = 1.5  # the first of equals is taken
    same(found_by(pooled, x), found_by(lambda x: max_pool2d(x, 2), x))


def test_normalized_images() -> None:
    norm = RMSNorm(3, axis=-3)
    with torch.no_grad():
        norm.scale.copy_(torch.tensor([0.5, 1.0, 2.0]))
    x = image().float()
    expected = found_by(lambda x: silu(norm(x)), x, norm.scale)
    same(found_by(lambda x: norm_silu(norm, x), x, norm.scale), expected)


@pytest.mark.parametrize("outputs", [2, 3])
def test_upsampled_convolutions(outputs: int) -> None:
    conv = Conv(3, outputs, np.random.default_rng(0)).double()
    weights = (conv.weight, conv.bias)
    x = image()
    expected = found_by(lambda x: conv(interpolate(x, scale_factor=2)), x, *weights)  # type: ignore[arg-type]
    same(found_by(lambda x: upsampled(conv, x), x, *weights), expected)  # type: ignore[arg-type]


def kept_by(call: Callable[[], Any], *parts: torch.nn.Module) -> int:
    """Numbers that a call keeps for its gradients, but for weights."""
    kept: dict[int, int] = {}
    own = {p.untyped_storage().data_ptr() for part in parts for p in part.parameters()}

    def pack(saved: Tensor) -> Tensor:
        at = saved.untyped_storage().data_ptr()
        if at not in own:
            kept[at] = saved.untyped_storage().nbytes()
        return saved

    with saved_tensors_hooks(pack, lambda saved: saved):
        result = call()  # held until all was counted, so that no memory is used twice
    del result
    return sum(kept.values())


def test_less_is_kept_than_the_largest_image_takes() -> None:
    """Of depth 4 the first convolution gives 8 x 64 x 64 numbers, and the last one sees them."""
    entries = {"obs": spaces.Box(0, 255, (64, 64, 3), np.uint8)}
    generator = np.random.default_rng(0)
    encoder = Encoder(entries, depth=4, units=8, generator=generator)
    decoder = Decoder(entries, deter=16, stoch=16, depth=4, units=8, generator=generator)
    obs = torch.randint(256, (5, 64, 64, 3), dtype=torch.uint8)
    latent = Latent(torch.randn(5, 16), torch.randn(5, 4, 4))
    largest = 5 * 8 * 64 * 64 * 4
    seen = 5 * 3 * 64 * 64 * 4
    assert kept_by(lambda: encoder({"obs": obs}), encoder) < largest + seen
    assert kept_by(lambda: decoder(latent), decoder) < largest + seen


def test_half_precision_is_as_precise() -> None:
    conv, norm = Conv(3, 4, np.random.default_rng(0)), RMSNorm(4, axis=-3)
    x, weights = image().float(), (conv.weight, conv.bias, norm.scale)
    with torch.autocast("cpu", torch.bfloat16):
        found = found_by(lambda x: norm_silu(norm, pooled(upsampled(conv, x))), x, *weights)  # type: ignore[arg-type]
        expected = found_by(
            lambda x: silu(norm(max_pool2d(conv(interpolate(x, scale_factor=2)), 2))),
            x,
            *weights,  # type: ignore[arg-type]
        )
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() <= 0.02 * other.norm()
