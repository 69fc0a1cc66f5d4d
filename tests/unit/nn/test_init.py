"""Initial weights are orthogonal, reproducible and the same on every backend."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sharpwave.layouts.init import truncated_normal
from sharpwave.nn import initialize, initialize_uniform, make_mlp, orthogonal, world_layers
from sharpwave.nn.mlp import ACTIVATIONS

SHAPES = [(5, 3), (3, 5), (4, 4), (8, 2, 3, 3), (1, 7), (7, 1)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("gain", [1.0, math.sqrt(2), 0.01])
def test_rows_or_columns_are_orthonormal_times_the_gain(
    shape: tuple[int, ...], gain: float
) -> None:
    weight = orthogonal(np.random.default_rng(0), shape, gain)
    assert weight.dtype == np.float32
    assert weight.shape == shape
    assert weight.flags.c_contiguous
    matrix = weight.reshape(shape[0], -1).astype(np.float64) / gain
    smaller = matrix @ matrix.T if shape[0] <= matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(smaller, np.eye(len(smaller)), atol=1e-6)


def test_signs_of_a_single_weight_are_even() -> None:
    generator = np.random.default_rng(0)
    positive = sum(orthogonal(generator, (1, 1)).item() > 0 for _ in range(2000))
    assert 900 < positive < 1100


@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 9))
def test_same_seed_same_weights(seed: int, rows: int, columns: int) -> None:
    first, second = (
        orthogonal(np.random.default_rng(seed), (rows, columns), 1.5) for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


def test_one_axis_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shape must have at least two axes, got \(3,\)"):
        orthogonal(np.random.default_rng(0), (3,))


def test_layers_get_what_the_generator_gives_in_their_order() -> None:
    net = make_mlp(3, (5, 4), 2, "relu", np.random.default_rng(7), head_gain=0.01)
    generator = np.random.default_rng(7)
    for index, gain in ((0, math.sqrt(2)), (2, math.sqrt(2)), (4, 0.01)):
        layer = net[index]
        assert isinstance(layer, nn.Linear)
        expected = orthogonal(generator, tuple(layer.weight.shape), gain)
        np.testing.assert_array_equal(layer.weight.detach().numpy(), expected)
        assert not layer.bias.any()


def test_recurrent_layers_are_orthogonal_as_whole_matrices() -> None:
    rnn = nn.LSTM(3, 4)
    initialize(rnn, np.random.default_rng(0))
    parameters = {name: parameter.detach() for name, parameter in rnn.named_parameters()}
    for name in ("weight_ih_l0", "weight_hh_l0"):
        matrix = parameters[name].double()
        torch.testing.assert_close(
            matrix.T @ matrix, torch.eye(matrix.shape[1], dtype=torch.float64), atol=1e-6, rtol=0
        )
    assert not parameters["bias_ih_l0"].any()
    assert not parameters["bias_hh_l0"].any()


def test_global_generators_are_left_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    orthogonal(np.random.default_rng(0), (3, 3))
    torch.testing.assert_close(torch.rand(3), expected, rtol=0, atol=0)


@pytest.mark.parametrize("hidden", [(), (6,), (6, 5)])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_lean_way_gives_the_numbers_of_the_module(
    hidden: tuple[int, ...], activation: str
) -> None:
    net = make_mlp(3, hidden, 2, activation, np.random.default_rng(0))
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    output, latent = net.lean_with_latent(x)
    torch.testing.assert_close(output, net(x), rtol=0, atol=0)
    torch.testing.assert_close(net.lean(x), net(x), rtol=0, atol=0)
    torch.testing.assert_close(latent, net[:-1](x) if hidden else x, rtol=0, atol=0)
    for lean, full in zip((output, latent), net.with_latent(x), strict=True):
        torch.testing.assert_close(lean, full, rtol=0, atol=0)


def test_unknown_activation_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"activation must be one of \[.*'tanh'\], got 'tan'"):
        make_mlp(3, (4,), 2, "tan", np.random.default_rng(0))


def test_empty_layers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"hidden must hold positive sizes, got \(4, 0\)"):
        make_mlp(3, (4, 0), 2, "tanh", np.random.default_rng(0))


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(9, 64),
    "convolution": lambda: nn.Conv2d(4, 16, 3),
    "lstm": lambda: nn.LSTM(5, 16),
    "gru": lambda: nn.GRU(5, 16),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_uniform_first_weights_are_as_wide_as_those_of_torch(kind: str) -> None:
    layer, theirs = LAYERS[kind](), LAYERS[kind]()
    initialize_uniform(layer, np.random.default_rng(0))
    for own, other in zip(layer.parameters(), theirs.parameters(), strict=True):
        bound = other.abs().max().item()  # of many numbers, the largest is near the bound
        assert own.abs().max().item() == pytest.approx(bound, rel=0.25)
        if own.ndim > 1:
            assert own.std().item() == pytest.approx(other.std().item(), rel=0.15)


@pytest.mark.parametrize(("fan_in", "scale"), [(64, 1.0), (25, 0.01)])
def test_truncated_normals_have_the_deviation_that_is_asked_for(fan_in: int, scale: float) -> None:
    weight = truncated_normal(np.random.default_rng(0), (400, 500), fan_in, scale)
    deviation = scale / math.sqrt(fan_in)
    assert weight.std() == pytest.approx(deviation, rel=0.01)
    assert abs(weight.mean()) < 0.01 * deviation
    most = 2 * 1.1368 * deviation
    assert 0.99 * most < np.abs(weight).max() <= most * (1 + 1e-6)
    assert not truncated_normal(np.random.default_rng(0), (4, 5), fan_in, 0.0).any()


def test_layers_of_world_models_begin_with_them_and_biases_of_zero() -> None:
    generator = np.random.default_rng(0)
    layers: list[tuple[nn.Module, int]] = [
        (world_layers.TruncatedLinear(256, 512, generator), 256),
        (world_layers.BlockLinear(512, 1024, 4, generator), 512),
        (world_layers.Conv(16, 64, generator), 16 * 25),
    ]
    for layer, fan_in in layers:
        assert not layer.bias.any()  # type: ignore[operator]
        std = layer.weight.detach().std().item()  # type: ignore[operator]
        assert std == pytest.approx(1 / math.sqrt(fan_in), rel=0.03)
    head = world_layers.Head(8, 2, 16, 5, generator, scale=0.0)
    assert not head.output.weight.any()
    assert not head.output.bias.any()
